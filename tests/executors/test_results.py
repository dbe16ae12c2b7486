"""Failures as records."""

from __future__ import annotations

from adescent.executors.results import failure_from, traceback_of


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except type(error) as caught:
        return caught


def test_an_exception_that_cannot_be_put_into_words_is_still_reported() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    failure = failure_from(raised(Mute()), "model", "run")
    assert failure.type == "Mute"
    assert "RuntimeError" in failure.message
    assert "Mute" in traceback_of(raised(Mute()))


def test_messages_and_tracebacks_are_bounded_and_keep_what_matters() -> None:
    error = raised(ValueError("x" * 100_000 + " the end"))
    assert len(failure_from(error, "model", "run").message) == 2000
    text = traceback_of(error)
    assert len(text) == 8192
    assert text.rstrip().endswith("the end")


def redact(text: str) -> str:
    return text.replace("0123456789" * 10, "«TOKEN»")


def test_no_part_of_a_secret_is_at_a_cut_however_long_the_words_are() -> None:
    secret = "0123456789" * 10
    for words in ("m" * 1950 + secret, secret + "m" * 8150, secret * 100_001 + "0", "m" + secret * 100_001):
        error = raised(ValueError(words))
        message, trace = failure_from(error, "model", "run", redact).message, traceback_of(error, redact)
        assert len(message) <= 2000
        assert len(trace) <= 8192
        assert "012345" not in message + trace
        assert "456789" not in message + trace


def test_a_traceback_names_the_line_that_raised() -> None:
    assert "raise error" in traceback_of(raised(ValueError("here")))


def test_an_exception_that_was_never_raised_has_a_traceback_too() -> None:
    assert traceback_of(ValueError("made by hand")) == "ValueError: made by hand\n"


def test_an_exception_whose_class_has_no_module_has_words_and_a_traceback() -> None:
    scope: dict[str, type[Exception]] = {}
    exec("Plain = type('Plain', (Exception,), {})", scope)
    error = raised(scope["Plain"]("the words"))
    assert failure_from(error, "model", "run").message == "the words"
    assert "raise error" in traceback_of(error)
    assert traceback_of(error).endswith("Plain: the words\n")
