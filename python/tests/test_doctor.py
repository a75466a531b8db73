"""``ripieno doctor`` approves this machine, and reports faults of others."""

import json

from click.testing import CliRunner
from ripieno import host
from ripieno.cli.run import doctor_command
from ripieno.doctor import machine


def test_the_checks_of_this_machine_pass():
    result = CliRunner().invoke(doctor_command, ["--json"])

    findings = {finding["name"]: finding for finding in json.loads(result.output)}
    assert result.exit_code == 0, result.output
    assert "connected in" in findings["2 workers over tcp"]["found"]
    assert "connected in" in findings["2 workers over shared-memory"]["found"]
    assert "connected in" in findings["2 workers over TLS 1.3 (TLS13_AES_128_GCM_SHA256)"]["found"]
    assert any(text in findings["copies"]["found"] for text in ("with streaming stores", "is unknown"))
    assert findings["encryption"]["found"].startswith(
        "connections between hosts, by TLS 1.3 (TLS13_AES_128_GCM_SHA256)"
    )


def test_copies_are_reported_with_both_kinds_of_stores():
    assert host.copies_text([1 / 8e9, 1 / 12e9]) == (
        "a link of shared memory moves 8.0 GB/s with ordinary stores, 12.0 GB/s with streaming stores"
    )
    assert "other programs use the cores" in host.copies_text([None, 1e-9])


def test_encryption_is_reported_as_set_in_the_environment(monkeypatch):
    monkeypatch.setattr(machine, "LINKS", ())
    for value, described in (("0", "none: RIPIENO_TLS=0"), ("1", "all TCP connections")):
        monkeypatch.setenv("RIPIENO_TLS", value)
        assert described in CliRunner().invoke(doctor_command, []).output


def test_links_that_do_not_work_are_reported_with_advice_and_exit_code_1(monkeypatch):
    monkeypatch.setattr(machine, "LINKS", ("string", "tcp"))

    result = CliRunner().invoke(doctor_command, [])

    assert result.exit_code == 1
    assert "2 workers over string: InputError" in result.output
    assert "links='tcp'" in result.output


def test_a_warning_is_reported_but_is_no_failure(monkeypatch):
    monkeypatch.setattr(machine, "MEMORY_MIN_BYTES", 1 << 60)
    monkeypatch.setattr(machine, "LINKS", ())

    result = CliRunner().invoke(doctor_command, [])

    assert result.exit_code == 0
    assert "raise the container's memory limit" in result.output


def test_a_failed_check_is_reported_as_a_finding(monkeypatch):
    def broken():
        raise OSError("no such thing")

    monkeypatch.setattr(machine.host, "memory_limit_bytes", broken)
    monkeypatch.setattr(machine, "LINKS", ())

    bad = [finding for finding in machine.examine() if finding.outcome == machine.BAD]

    assert [finding.found for finding in bad] == ["could not be examined: OSError: no such thing"]
