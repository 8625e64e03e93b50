"""Which documents go to which record file."""

import numpy as np
import pytest

from bert_tf.records.allocation import ENOUGH_DOCUMENTS, _shard_jobs


@pytest.mark.parametrize(
    ("counts", "borrowed"),
    [
        # A file borrows pools until it has enough documents, then no more.
        ([ENOUGH_DOCUMENTS, 5, 5, 0], [(), (2, 0), (0,)]),
        ([ENOUGH_DOCUMENTS - 1, 1, 9, 0], [(1,), (2, 0), (0,)]),
        # Without documents it writes nothing and borrows nothing.
        ([0, 3, 2, 0], [(), (2,), (1,)]),
    ],
)
def test_files_with_few_documents_borrow(counts, borrowed):
    jobs = _shard_jobs(np.array(counts), holds_out=True)
    assert [job.borrowed_pools for job in jobs] == [*borrowed, ()]
