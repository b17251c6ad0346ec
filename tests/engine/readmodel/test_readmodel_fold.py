"""The rows are the fold: whatever a run lived through, in whatever portions it was followed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.json_patch import same
from engine.documents import document
from engine.open_store import Store, open_store
from engine.readmodel import ReadModel
from tests.engine.readmodel.readmodel_harness import document_in, dump, readmodel
from tests.engine.readmodel.readmodel_runs import Step, live, steps


def _compare(store: Store, model: ReadModel, run: str, position: int) -> None:
    with model._place.reading() as connection:
        found = document_in(connection, run)
    expected = document(store.view(run, at=position))
    for kind in expected:
        assert found[kind].keys() == expected[kind].keys(), kind
        assert list(found[kind]) == list(expected[kind]) or kind == "graphs"
        for key, record in expected[kind].items():
            assert same(found[kind][key], record), (kind, key, found[kind][key], record)


def _dump(model: ReadModel) -> bytes:
    with model._place.reading() as connection:
        return dump(connection)


@settings(max_examples=25)
@given(chosen=steps(), chunk_events=st.integers(1, 20))
def test_rows_are_the_fold_at_every_position(chosen: list[Step], chunk_events: int) -> None:
    """After every chunk of any size the rows of a run say what the fold says at the position they name."""
    with open_store("memory:") as store, readmodel(store, None, chunk_events) as model:
        run = store.run("it's")
        live(run, chosen)
        seen = []

        def chunk_written(position: int, end: int) -> None:
            assert end == run.position
            assert model.positions() == {"it's": position}
            _compare(store, model, "it's", position)
            seen.append(position)

        if run.position:
            assert model.update(chunk_written).events == run.position
            assert seen[-1] == run.position and len(seen) >= run.position // (chunk_events + 60)
        assert model.update(chunk_written).events == 0


@settings(max_examples=20)
@given(chosen=steps(10, 40), portion=st.integers(1, 6), chunk_events=st.integers(1, 7))
def test_incremental_is_rebuilt(chosen: list[Step], portion: int, chunk_events: int) -> None:
    """A read model that followed run and fork in small portions, one that was made at once and one that was rebuilt
    hold the same bytes."""
    with (
        open_store("memory:", clock=iter(range(1000, 10**9)).__next__) as store,
        readmodel(store, None, chunk_events) as model,
        readmodel(store, None) as whole,
    ):
        run = store.run("a")
        for start in range(0, len(chosen), portion):
            live(run, chosen[start : start + portion])
            model.update()
            if start == 0 and run.position:
                fork = run.fork("b", at=run.position // 2)
                live(fork, chosen[: portion * 2])
        for name, position in model.positions().items():
            _compare(store, model, name, position)
        whole.update()
        followed = _dump(model)
        assert followed == _dump(whole)
        model.rebuild()
        assert followed == _dump(model)
