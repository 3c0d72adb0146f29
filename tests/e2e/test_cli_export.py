"""`leftfold export` and `leftfold import`: whole jobs out, checked without a store, and into another one."""

import gzip
import json
import os
import stat
from pathlib import Path

import pytest
from tests.e2e.command import complaint
from tests.e2e.homes import Home

from leftfold import NewJob


def some_jobs(home: Home) -> list[str]:
    """Make four jobs, the first of which has run."""
    with home.open() as engine:
        ids = [engine.enqueue("work", {"ü": "漢字 🎉"}).job_id]
        (claim,) = engine.claim("worker-a")
        engine.start(claim)
        engine.heartbeat(claim)
        engine.complete(claim, "done")
        ids.append(engine.enqueue("work", key="order:1", tenant="acme").job_id)
        ids.append(engine.enqueue("other", queue="slow").job_id)
        ids.append(engine.enqueue("work", due=3600).job_id)
    return ids


def exported(out: str) -> set[str]:
    head, *jobs, foot = (json.loads(line) for line in out.splitlines())
    assert (head["is"], foot["is"], foot["jobs"]) == ("leftfold export", "end", len(jobs))
    return {job["id"] for job in jobs}


def test_an_export_goes_from_one_store_to_another_and_back(both: tuple[Home, Home]) -> None:
    ours, theirs = (home.migrated() for home in both)
    ids = some_jobs(ours)
    out = ours.run("export")
    assert (out.code, out.err, exported(out.out)) == (0, "", {*ids})
    assert theirs.run("import", "-", stdin=out.out.encode()) == (0, "4 jobs came in\n", "")
    assert theirs.run("verify").code == 0
    assert theirs.run("export").out.splitlines()[1:-1] == out.out.splitlines()[1:-1]
    for job_id in ids:
        for command in ("show", "history"):
            asked = ["jobs", command, job_id, "--json"]
            assert theirs.run(*asked).out == ours.run(*asked).out
    again = theirs.run("import", "-", "--json", stdin=out.out.encode())
    assert again.json() == {"imported": 0, "present": 4, "refused": []}


def test_some_of_the_jobs(home: Home) -> None:
    ran, keyed, slow, later = some_jobs(home)

    def asked(*arguments: str) -> set[str]:
        return exported(home.run("export", *arguments).out)

    assert asked("--job", ran[:23], "--job", slow) == {ran, slow}
    assert asked("--state", "succeeded") == {ran}
    assert asked("--state", "succeeded", "--state", "queued") == {ran, keyed, slow, later}
    assert asked("--queue", "slow") == {slow}
    assert asked("--kind", "other") == {slow}
    assert asked("--tenant", "acme") == {keyed}
    assert asked("--since", "1h") == {ran, keyed, slow, later}
    assert asked("--since", "2999-01-01T00:00:00Z") == set()


def test_a_file_is_there_as_a_whole_or_not_at_all(file_home: Home) -> None:
    ids = some_jobs(file_home)
    file = file_home.folder / "jobs.jsonl"
    assert file_home.run("export", "-o", "jobs.jsonl") == (0, "", "4 jobs with 7 events are in jobs.jsonl\n")
    assert exported(file.read_text(encoding="utf-8")) == {*ids}
    before = file.read_bytes()
    file_home.sql("DROP VIEW leftfold_log")  # the export breaks on its way
    broken = file_home.run("export", "-o", "jobs.jsonl")
    assert broken.code == 1
    complaint(broken)
    assert file.read_bytes() == before
    assert sorted(each.name for each in file_home.folder.iterdir() if "jsonl" in each.name) == ["jobs.jsonl"]


def test_a_link_stays_one_and_a_device_is_written_to(file_home: Home) -> None:
    some_jobs(file_home)
    real, link = file_home.folder / "real.jsonl", file_home.folder / "link.jsonl"
    real.touch()
    link.symlink_to(real)
    assert file_home.run("export", "-o", "link.jsonl").code == 0
    assert link.is_symlink()
    assert len(real.read_text(encoding="utf-8").splitlines()) == 6
    null = file_home.folder / "null"
    os.mkfifo(null)
    end = os.open(null, os.O_RDONLY | os.O_NONBLOCK)
    assert file_home.run("export", "-o", "null").code == 0
    assert os.read(end, 10) == b'{"is":"lef'
    os.close(end)
    assert stat.S_ISFIFO(null.stat().st_mode)


@pytest.mark.parametrize("place", ["no/such/folder.jsonl", ".", "/dev/full"])
def test_a_file_that_cannot_be_written_is_said_in_one_line(file_home: Home, place: str) -> None:
    some_jobs(file_home)
    ran = file_home.run("export", "-o", place)
    assert (ran.code, ran.out) == (1, "")
    assert complaint(ran).startswith("leftfold: os: ")
    assert place in ran.err


def test_an_export_is_checked_without_a_store(home: Home, tmp_path: Path) -> None:
    some_jobs(home)
    home.run("export", "-o", str(tmp_path / "jobs.jsonl"))
    good = (tmp_path / "jobs.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    nowhere = ["--store", f"sqlite:///{tmp_path}/nothing.db"]

    def check(lines: list[str]) -> tuple[int, dict[str, object]]:
        ran = home.run("verify", "--file", "-", "--json", *nowhere, stdin="".join(lines).encode())
        assert ran.err == ""
        return ran.code, ran.json()

    code, shape = check(good)
    assert (code, shape["clean"], shape["jobs"], shape["events"], shape["problem"]) == (0, True, 4, 7, None)
    code, shape = check(good[:-1])
    assert (code, shape["jobs"], shape["problem"]) == (1, 4, "the export was cut short: it has no last line")
    code, shape = check([*good[:2], *good[3:]])
    assert (code, shape["jobs"]) == (1, 3)
    assert "changed" in str(shape["problem"])
    code, shape = check([good[0], good[1].replace("done", "gone"), *good[2:]])
    findings = shape["findings"]
    assert isinstance(findings, list)
    assert (code, [finding["what"] for finding in findings]) == (1, ["chain"])
    assert check(["Dear diary\n"])[0] == 1
    assert check([])[0] == 1
    told = home.run("verify", "--file", "-", stdin="".join(good[:2]).encode())
    assert told.code == 1
    assert told.out.startswith("no whole export: the export was cut short")
    assert not (tmp_path / "nothing.db").exists()


def test_a_file_that_cannot_be_read_is_wrong_input(file_home: Home) -> None:
    for command in (["verify", "--file"], ["import"]):
        for file in ("nowhere.jsonl", "."):
            ran = file_home.run(*command, file)
            assert (ran.code, ran.out) == (2, "")
            assert complaint(ran).startswith(f"leftfold: validation_failed: {file} cannot be read: ")
    assert file_home.trace() == {}


NO_EXPORTS = {
    "nothing": b"", "a text": b"Dear diary\n", "bytes": b"\xff\xfe", "packed": gzip.compress(b"x"),
    "other JSON": b"{}\n", "a long line": b"x" * 10_000,
}  # fmt: skip


@pytest.mark.parametrize("content", NO_EXPORTS.values(), ids=NO_EXPORTS)
def test_what_is_no_export_makes_no_store(bare: Home, content: bytes) -> None:
    before = bare.trace()
    ran = bare.run("import", "-", stdin=content)
    assert (ran.code, ran.out) == (2, "")
    assert complaint(ran).startswith("leftfold: validation_failed: this is no export of leftfold")
    assert bare.trace() == before


def test_input_without_an_end_is_not_waited_for(file_home: Home) -> None:
    assert file_home.run("verify", "--file", "/dev/zero").code == 1
    assert file_home.run("import", "/dev/zero").code == 2


def test_a_file_is_made_by_an_import(both: tuple[Home, Home], tmp_path: Path) -> None:
    ours, theirs = both
    some_jobs(ours)
    ours.run("export", "-o", str(tmp_path / "out.jsonl"))
    url = f"sqlite:///{tmp_path}/new.db"
    assert ours.run("import", "out.jsonl", "--store", url) == (0, "4 jobs came in\n", "")
    assert ours.run("verify", "--store", url).code == 0
    bare = theirs.run("import", str(tmp_path / "out.jsonl"))
    assert bare.code == 1
    assert complaint(bare).startswith("leftfold: store_not_ready: ")


def test_jobs_that_cannot_come_in_are_named_and_the_others_do(both: tuple[Home, Home]) -> None:
    ours, theirs = (home.migrated() for home in both)
    ran, keyed, slow, later = some_jobs(ours)
    with theirs.open() as engine:
        engine.enqueue("work", key="order:1", tenant="acme")
    ours.tamper("UPDATE {schema}.events SET at = at + 1 WHERE version = 2")
    ours.run("export", "-o", "jobs.jsonl")
    file = str(ours.folder / "jobs.jsonl")
    told = theirs.run("import", file)
    assert (told.code, told.err) == (1, "")
    assert told.out.splitlines()[0] == "refused"
    assert told.out.splitlines()[-1] == "2 jobs came in, 2 were refused"
    assert f"  chain  {ran}  event 2 is not the one that was sealed" in told.out
    shape = theirs.run("import", file, "--json").json()
    assert (shape["imported"], shape["present"]) == (0, 2)
    assert {each["job_id"]: each["what"] for each in shape["refused"]} == {ran: "chain", keyed: "key"}
    there = {job["id"] for job in theirs.run("jobs", "list", "--json").lines()}
    assert {slow, later} <= there
    assert there & {ran, keyed} == set()


def test_an_import_that_breaks_off_says_how_far_it_came(home: Home, tmp_path: Path) -> None:
    with home.open() as engine:
        engine.enqueue_many(NewJob("work") for _ in range(600))
    lines = home.run("export").out.splitlines(keepends=True)
    ran = home.run(
        "import", "-", "--store", f"sqlite:///{tmp_path}/new.db", stdin="".join([*lines[:-1], "{}\n"]).encode()
    )
    assert (ran.code, ran.out) == (1, "")
    assert complaint(ran).endswith("; the 500 jobs before that place are dealt with")


def test_a_bar_beside_the_data_but_never_in_it(file_home: Home) -> None:
    with file_home.open() as engine:
        engine.enqueue_many(NewJob("work") for _ in range(600))
    shown = file_home.watched("export", "-o", str(file_home.folder / "jobs.jsonl"), NO_COLOR="1").out
    assert " of 600 jobs, " in shown
    assert "█" not in file_home.watched("export").out
    assert " jobs, " in file_home.watched("import", str(file_home.folder / "jobs.jsonl"), NO_COLOR="1").out
