"""The peer of benchmarks/search.py: faiss' exact index, on demand.

Reads FOLDER/corpus.npy and FOLDER/queries.npy, searches for each line on
standard input, writes FOLDER/found.npy and answers with the seconds.

    python benchmarks/search_faiss.py FOLDER TOP_K THREADS
"""

import json
import sys
import time

import faiss
import numpy as np


def main():
    """Answers every line of standard input."""
    folder, top_k, threads = sys.argv[1:]
    faiss.omp_set_num_threads(int(threads))
    corpus = np.load(f"{folder}/corpus.npy")
    queries = np.load(f"{folder}/queries.npy")
    index = faiss.IndexFlatIP(corpus.shape[1])
    index.add(corpus)
    print(json.dumps({"name": f"faiss {faiss.__version__}"}), flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        _, found = index.search(queries, int(top_k))
        seconds = time.perf_counter() - begun
        np.save(f"{folder}/found.npy", found)
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
