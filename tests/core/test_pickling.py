import threading
from functools import partial

from hyperplane.core.pickling import find_pickle_faults


class _Model:
    def __init__(self):
        self.lock = threading.Lock()
        self.size = 3

    def score(self, values):
        return values


def test_a_function_that_can_be_pickled_has_no_fault():
    assert find_pickle_faults("objective", lambda values: len(values)) == []


def test_the_variable_of_a_closure_is_named():
    lock, size = threading.Lock(), 3

    def objective(values):
        return size if lock.locked() else 0

    (fault,) = find_pickle_faults("objective", objective)
    assert fault.where == "objective"
    assert "variable 'lock' (lock)" in fault.allowed
    assert "size" not in fault.allowed


def test_the_argument_of_a_partial_function_is_named():
    (fault,) = find_pickle_faults("objective", partial(max, key=threading.Lock()))
    assert "argument 'key' (lock)" in fault.allowed


def test_the_attribute_of_an_object_is_named():
    (fault,) = find_pickle_faults("estimator", _Model())
    assert "attribute 'self.lock' (lock)" in fault.allowed


def test_a_method_names_the_attribute_of_its_object():
    (fault,) = find_pickle_faults("objective", _Model().score)
    assert "attribute 'self.lock' (lock)" in fault.allowed


def test_arguments_are_checked_too():
    (fault,) = find_pickle_faults("func", len, [3, threading.Lock()])
    assert fault.where == "args[1]"


def test_globals_and_defaults_of_a_notebook_function_are_named():
    space = {"LOCK": threading.Lock(), "__name__": "__main__"}
    exec("def f(shard, guard=LOCK):\n    return LOCK, shard", space)
    text = " ".join(fault.allowed for fault in find_pickle_faults("f", space["f"]))
    assert "global variable 'LOCK'" in text
    assert "default value 'guard'" in text
