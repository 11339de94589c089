from __future__ import annotations

from engine.devices.company import Company


def test_who_comes_to_an_empty_device_and_stays_by_itself_was_alone():
    company = Company()
    for _ in range(2):
        with company.present() as here:
            pass
        assert here.alone


def test_neither_of_two_was_alone_however_short_the_visit():
    company = Company()
    with company.present() as first:
        with company.present() as second:
            pass

    assert not first.alone and not second.alone


def test_who_leaves_first_does_not_leave_the_other_alone():
    company = Company()
    first, second = company.present(), company.present()
    one, other = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    with company.present() as third:
        pass
    second.__exit__(None, None, None)

    assert not (one.alone or other.alone or third.alone)


def test_who_failed_is_gone():
    company = Company()
    try:
        with company.present():
            raise ValueError
    except ValueError:
        pass

    with company.present() as here:
        assert here.alone
