"""Which documents go to which record file."""

import pathlib
import types

import numpy as np
import pytest

from bert_tf.corpora.streams import Position
from bert_tf.records.allocation import (
    ENOUGH_DOCUMENTS,
    _shard_jobs,
    allocate,
)
from bert_tf.records.recipe import RecordsRecipe
from bert_tf.records.token_blocks import BlockSummary


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


@pytest.mark.parametrize(
    ("pools", "holds_out"),
    [
        # Pool 2 is held out: two documents, and two remain for the files.
        ([0, 1, 2, 2], True),
        ([1, 1, 2, 2], True),
        ([0, 1, 2], False),
        ([1, 2, 2], False),
    ],
)
def test_two_documents_are_held_out_and_two_remain(pools, holds_out):
    plan = types.SimpleNamespace(
        recipe=RecordsRecipe(held_out=0.5, num_shards=2),
        weights={"": 1.0},
        num_shards=2,
        assign_pools=lambda documents, number: np.array(pools[:documents]),
    )
    task = types.SimpleNamespace(plan=plan, files=())
    rows = len(pools)
    block = BlockSummary(rows, rows, 9 * rows, 0, Position(1), 99, False, ())
    found = allocate(task, [block], list, folder=pathlib.Path())
    held_out = [job for job in found.jobs if job.name.startswith("held_out")]
    assert len(held_out) == holds_out
    assert len(found.warnings) == (not holds_out)
