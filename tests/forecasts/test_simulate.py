"""Memory of simulated toy graphs with known answers."""

from __future__ import annotations

import pytest

from hyperplane.forecasts.heap_threads import find_heap_threads
from hyperplane.forecasts.memory_series import MemorySeries, SeriesRecorder
from hyperplane.forecasts.simulate import BANDWIDTH, DELAY, Simulation
from hyperplane.forecasts.simulated_memory import (
    ALLOCATOR,
    SHUFFLE,
    SHUFFLE_SHARE,
    WORKER,
    ProcessBaseline,
)
from hyperplane.forecasts.unit_cost import UnitCost

NOTHING = ProcessBaseline(empty=0.0, retained=0.0, shuffle_buffer=1e12)


def unit(number, *dependencies, output=0.0, transient=0.0, kind=0, **options):
    return UnitCost(kind, number, dependencies, output, transient, 1.0, **options)


def simulate(units, processes=1, threads=1, memory=NOTHING, jitter=0.0):
    targets = [len(units) - 1]
    return Simulation(units, targets, memory, processes, threads, jitter=jitter).run()


def test_the_recorded_memory_is_that_of_the_process_over_the_time():
    units = [unit(0, output=10, transient=15), unit(1, 0, output=1, transient=20)]
    recorder = SeriesRecorder(1, seconds=2.0, parts=4)
    timeline = Simulation(units, [1], NOTHING, 1, 1, jitter=0.0, recorder=recorder).run()
    assert (timeline.peaks, timeline.seconds) == ((30,), 2 + DELAY)
    series = recorder.list_series()
    # In the third part the first unit ends, whose memory was the last value before.
    assert series == MemorySeries(2.0, ((15, 15, 30, 30),))
    assert series.peaks == timeline.peaks


@pytest.mark.parametrize("processes", [1, 3])
def test_recorded_peaks_are_those_of_the_simulation(processes):
    parts = [unit(number, output=number % 7, transient=9, adds={"s": 2.0}) for number in range(40)]
    units = [*parts, unit(40, *range(40), ends=("s",)), unit(41, 40, transient=3)]
    memory = ProcessBaseline(empty=5, retained=1, shuffle_buffer=1e12)
    expected = Simulation(units, [41], memory, processes, 2, seed=3).run()
    recorder = SeriesRecorder(processes, expected.seconds)
    again = Simulation(units, [41], memory, processes, 2, expected.seed, recorder=recorder).run()
    assert again == expected
    assert recorder.list_series().peaks == expected.peaks


def test_a_thread_begins_with_another_task_before_it_knows_of_the_next_one():
    first, second = unit(0, output=10, transient=10), unit(1, 0, output=1, transient=1)
    other = unit(2, output=10, transient=10)
    together = unit(3, 1, 2)
    assert simulate([first, second, other, together]).peaks == (10 + 10 + 1,)
    # Not before what it needs itself.
    assert simulate([first, second, unit(2, 1, output=10, transient=10)]).peaks == (10 + 1,)


def test_units_that_are_ready_at_the_same_time_start_in_the_order_of_their_priority():
    late = UnitCost(0, 2, (0,), output=100.0, transient=100.0, seconds=1.0)
    early = UnitCost(0, 1, (0,), output=0.0, transient=150.0, seconds=1.0)
    assert simulate([unit(0), late, early, unit(3, 1, 2)]).peaks == (150,)


def test_a_chain_has_the_memory_of_one_result_and_one_task():
    units = [unit(0, output=10, transient=15), unit(1, 0, output=1, transient=5)]
    assert simulate(units).peaks == (15,)
    units = [unit(0, output=10, transient=15), unit(1, 0, output=1, transient=20)]
    assert simulate(units).peaks == (30,)


@pytest.mark.parametrize(("threads", "peak", "seconds"), [(1, 8, 8), (2, 16, 4), (4, 32, 2)])
def test_the_transient_memory_of_all_threads_adds_up(threads, peak, seconds):
    units = [unit(number, transient=8) for number in range(8)]
    timeline = simulate(units, threads=threads)
    assert (timeline.peaks, timeline.seconds) == ((peak,), seconds)


def test_results_are_held_until_the_last_unit_that_needs_them():
    parts = [unit(number, output=10) for number in range(4)]
    timeline = simulate([*parts, unit(4, 0, 1, 2, 3, output=1, transient=2, kind=1)])
    assert timeline.peaks == (42,)
    assert timeline.terms == {("result", 0): 40, ("run", 1): 2}


@pytest.mark.parametrize(("seconds", "peak"), [(DELAY / 2, 30 + 15), (2 * DELAY, 20 + 15)])
def test_a_short_task_begins_before_the_inputs_of_the_last_one_are_released(seconds, peak):
    first = [unit(number, output=10) for number in range(2)]
    sums = [UnitCost(1, 2 + number, (number,), 10.0, 15.0, seconds) for number in range(2)]
    timeline = simulate([*first, *sums, unit(4, 2, 3)])
    assert timeline.peaks == (peak,)


def test_inputs_of_another_process_are_copied():
    units = [unit(0, output=10), unit(1, output=10), unit(2, 0, 1)]
    timeline = simulate(units, processes=2)
    assert sorted(timeline.peaks) == [10, 20]
    assert timeline.total == 30


def test_inputs_are_copied_while_the_process_runs_another_task():
    first = [unit(0, output=20), unit(1, output=10)]
    others = [unit(number, transient=100) for number in (3, 4)]
    units = [*first, unit(2, 0, 1), *others, unit(5, 2, 3, 4)]
    # Both processes begin with another unit before they know of the third one.
    assert simulate(units, processes=2).peaks[0] == 20 + 10 + 100


@pytest.mark.parametrize(("copied", "peak"), [(1.0, 100 + 100), (0.02, 100 + 2)])
def test_a_copy_of_a_view_has_nothing_of_the_array_that_it_is_a_part_of(copied, peak):
    parts = [unit(number, output=100, copied=copied) for number in range(2)]
    timeline = simulate([*parts, unit(2, 0, 1)], processes=2)
    assert sorted(timeline.peaks) == [100, peak]


def test_the_time_of_a_copy_is_that_of_its_bytes_and_a_process_copies_one_after_the_other():
    first = [unit(0, output=2 * BANDWIDTH, transient=2 * BANDWIDTH), unit(1, output=BANDWIDTH)]
    last = unit(2, 0, 1)
    assert simulate([*first, last], processes=2).seconds == 1 + DELAY + 1 + 1
    users = [unit(number, 0, 1) for number in (2, 3)]
    timeline = simulate([*first, *users, unit(4, 2, 3)], processes=2)
    # The second one waits for the first, in the same process: both need most of its bytes.
    assert timeline.seconds == pytest.approx(1 + DELAY + 1 + 1 + 1 + DELAY + 1)


@pytest.mark.parametrize(("output", "peaks"), [(10.0, [40, 40]), (4 * BANDWIDTH, None)])
def test_an_idle_process_takes_a_unit_if_its_copies_take_less_time_than_the_wait(output, peaks):
    root = unit(0, output=output, transient=output)
    users = [unit(1 + number, 0, transient=30) for number in range(4)]
    timeline = simulate([root, *users, unit(5, 1, 2, 3, 4)], processes=2)
    assert sorted(timeline.peaks) == (peaks or [0, output + 30])


def test_a_result_without_memory_is_in_memory_with_its_input_once():
    root = unit(0, output=30, transient=30)
    parts = [unit(1 + number, 0, output=30, is_view=True) for number in range(2)]
    timeline = simulate([root, *parts, unit(3, 1, 2, transient=5, kind=1)])
    assert timeline.peaks == (35,)
    assert timeline.terms == {("result", 0): 30, ("run", 1): 5}


def test_an_empty_process_and_what_allocators_keep_count_once():
    memory = ProcessBaseline(empty=100, retained=20, shuffle_buffer=0)
    timeline = simulate([unit(0, transient=5), unit(1, transient=5)], threads=2, memory=memory)
    assert timeline.peaks == (130,)
    assert timeline.terms["process", WORKER] == 100


def test_shuffled_rows_are_held_until_the_barrier_and_shared_by_the_processes():
    parts = [unit(number, adds={"s": 100.0}) for number in range(4)]
    units = [*parts, unit(4, 0, 1, 2, 3, ends=("s",)), unit(5, 4, transient=1, takes=(("s", 0.9),))]
    [peak] = simulate(units).peaks
    # And the rows of one input, which are being divided.
    assert peak == pytest.approx(400 * SHUFFLE_SHARE + 100)
    timeline = simulate(units, processes=2)
    assert timeline.peaks == pytest.approx((200 * SHUFFLE_SHARE + 100,) * 2)
    assert list(timeline.terms) == [("process", SHUFFLE)]


def test_the_buffer_limits_shuffled_rows():
    memory = ProcessBaseline(empty=0, retained=0, shuffle_buffer=0)
    parts = [unit(number, adds={"s": 1e9}) for number in range(4)]
    [peak] = simulate([*parts, unit(4, 0, 1, 2, 3, ends=("s",))], memory=memory).peaks
    assert peak == 100 * 2**20 + 1e9


def test_malloc_keeps_memory_for_the_next_task_and_not_for_results():
    parts = [unit(number, output=10, transient=40, heap=25) for number in range(4)]
    units = [*parts, unit(4, 0, 1, 2, 3, output=1, transient=5)]
    timeline = simulate(units)
    assert timeline.peaks == (70,)  # the fourth part runs, with three results
    parts = [unit(number, output=10, transient=26, heap=25) for number in range(4)]
    timeline = simulate([*parts, unit(4, 0, 1, 2, 3, output=1, transient=5)])
    assert timeline.peaks == (66,)
    # While the last unit runs, the 25 are still there, of which it uses 5.
    assert timeline.terms == {("result", 0): 41, ("process", ALLOCATOR): 25}


def test_threads_share_a_part_of_what_malloc_keeps_after_their_tasks():
    parts = [unit(number, transient=14, heap=14) for number in range(4)]
    large = unit(4, 0, 1, 2, 3, output=1, transient=30, heap=30)
    [peak] = simulate([*parts, large, unit(5, 4)], threads=2).peaks
    assert peak == (30 + 14) * find_heap_threads(2) / 2 + 1
    [peak] = simulate([*parts, large, unit(5, 4)], threads=1).peaks
    assert peak == 30 + 1


@pytest.mark.parametrize(("block", "peak"), [(0, 30), (5, 30), (8, 30), (9, 38), (50, 38)])
def test_larger_blocks_do_not_fit_into_what_malloc_keeps(block, peak):
    parts = [unit(number, transient=10, heap=8, block=5) for number in range(4)]
    large = unit(4, 0, 1, 2, 3, transient=30, heap=30, block=block)
    # The second one uses the blocks of the first.
    units = [*parts, large, unit(5, 4, transient=30, block=block)]
    timeline = simulate(units)
    assert timeline.peaks == (peak,)
    assert timeline.total == peak
    kept = {("process", ALLOCATOR): 8} if peak > 30 else {}
    assert timeline.terms == {("run", 0): 30, **kept}


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (2, 1 / 2), (8, 1 / 8), (16, 2 / 16)])
def test_one_partition_of_a_process_waits_for_its_next_task(threads, ahead):
    """Of its bytes those count that are in memory while all threads are at their peaks."""
    units = [unit(number, transient=10, waiting=4) for number in range(40)]
    [peak] = simulate(units, threads=threads).peaks
    assert peak == 10 * threads + 4 * ahead


@pytest.mark.parametrize(("units", "waiting"), [(1, 0), (2, 0), (3, 1), (4, 1), (40, 1)])
def test_no_partition_waits_before_a_thread_begins_its_second_one(units, waiting):
    """A join of two partitions in two threads has none that waits."""
    first = [unit(number, transient=10, waiting=4) for number in range(units)]
    [peak] = simulate(first, threads=2).peaks
    assert peak == 10 * min(units, 2) + 4 / 2 * waiting
    peaks = simulate(first, processes=2, threads=1).peaks
    assert max(peaks) == 10 + 4 * waiting


@pytest.mark.parametrize(("needed", "peak"), [((), 20 * 10), ((1.0,) * 20, 10 * 10 + 10)])
def test_a_process_has_copies_only_of_the_results_that_it_needs(needed, peak):
    """Of units with two results, as the two matrices of a QR decomposition."""
    parts = [unit(number, output=10) for number in range(20)]
    together = unit(20, *range(20), inputs=needed)
    # The caller needs the large results, which remain where they are.
    targets = [*range(20), 20]
    timeline = Simulation([*parts, together], targets, NOTHING, 2, 1, jitter=0.0).run()
    assert max(timeline.peaks) == pytest.approx(peak)


def test_units_run_where_the_results_are_that_they_need():
    large, small = unit(0, output=100, kind=1), unit(1, output=10, kind=2)
    both = unit(2, 0, 1, transient=50, inputs=(1.0, 10.0), kind=3)
    timeline = Simulation([large, small, both], [2], NOTHING, 2, 1, jitter=0.0).run()
    # In the process of the small result, with one byte of the large one.
    assert sorted(timeline.peaks) == [61, 100]


def test_more_threads_and_larger_partitions_never_need_less():
    def peak(size, threads):
        parts = [unit(number, output=size, transient=2 * size) for number in range(20)]
        return simulate([*parts, unit(20, *range(20))], threads=threads).peaks[0]

    peaks = [[peak(size, threads) for threads in (1, 2, 4)] for size in (10, 20, 40)]
    assert all(row == sorted(row) for row in peaks)
    assert all(list(column) == sorted(column) for column in zip(*peaks, strict=True))


def test_all_units_run_with_any_number_of_processes():
    parts = [unit(number, output=3) for number in range(30)]
    trees = [unit(30 + i, *range(5 * i, 5 * i + 5), output=2) for i in range(6)]
    units = [*parts, *trees, unit(36, *range(30, 36))]
    for processes in (1, 2, 5, 50):
        timeline = simulate(units, processes=processes, threads=2, jitter=0.25)
        assert len(timeline.peaks) == processes
        assert 0 < max(timeline.peaks) <= 3 * 30 + 2 * 6


def shuffle_tasks(is_view):
    """Two tables are divided into two pieces each, of which two output partitions are made."""
    units = [unit(part, output=30, transient=30) for part in range(2)]
    for table in (0, 1):
        units.append(unit(2 + 2 * table, table, output=10, is_view=is_view, kind=1))
        units.append(unit(3 + 2 * table, table, output=20, is_view=is_view, kind=1))
    units.append(unit(6, 2, 4, output=1, transient=25, kind=2))
    units.append(unit(7, 3, 5, output=1, transient=45, kind=2))
    return [*units, unit(8, 6, 7, transient=1, kind=3)]


@pytest.mark.parametrize(
    ("is_view", "terms"),
    [
        (True, {("result", 0): 60, ("result", 2): 1, ("run", 2): 45}),
        (False, {("result", 0): 60, ("result", 1): 10 + 20}),  # with both pieces of the first one
    ],
)
def test_a_divided_table_is_in_memory_until_its_last_piece_is_not_needed(is_view, terms):
    timeline = simulate(shuffle_tasks(is_view))
    assert timeline.peaks == (sum(terms.values()),)
    assert timeline.total == sum(terms.values())
    assert timeline.terms == terms


def test_pieces_that_were_used_leave_no_memory():
    recorder = SeriesRecorder(1, seconds=9.0, parts=36)
    units = shuffle_tasks(is_view=True)
    Simulation(units, [8], NOTHING, 1, 1, jitter=0.0, recorder=recorder).run()
    assert recorder.list_series().processes[0][-1] == 3  # two results of 1, and the last unit


def test_a_piece_is_copied_to_another_process():
    units = [unit(0, output=30), unit(1, output=50), unit(2, 0, output=10, is_view=True, kind=1)]
    # The piece is used where the larger result is.
    units += [unit(3, 2, transient=1), unit(4, 1, 2, transient=5)]
    timeline = simulate(units, processes=2)
    assert sorted(timeline.peaks) == [31, 65]
    assert timeline.terms["result", 1] == 10


def test_a_piece_that_is_a_result_keeps_its_table():
    units = [unit(0, output=30), unit(1, 0, output=10, is_view=True), unit(2, transient=5)]
    timeline = Simulation(units, [1, 2], NOTHING, 1, 1, jitter=0.0).run()
    assert timeline.peaks == (35,)
