"""``ripieno doctor`` finds this machine fit, and says what is wrong with others."""

import json

from click.testing import CliRunner
from ripieno.launch import doctor
from ripieno.launch.cli import doctor_command


def test_this_machine_is_fit():
    result = CliRunner().invoke(doctor_command, ["--json"])

    findings = {finding["name"]: finding for finding in json.loads(result.output)}
    assert result.exit_code == 0, [finding for finding in findings.values() if finding["problem"]]
    assert "met in" in findings["2 workers over tcp"]["value"]
    assert "met in" in findings["2 workers over shared-memory"]["value"]


def test_a_problem_comes_with_advice_and_exit_code_1(monkeypatch):
    monkeypatch.setattr(doctor, "OPEN_FILES_MIN", 1 << 40)
    monkeypatch.setattr(doctor, "LINKS", ())

    result = CliRunner().invoke(doctor_command, [])

    assert result.exit_code == 1
    assert "ulimit -n" in result.output


def test_links_that_do_not_work_are_a_finding_not_a_crash(monkeypatch):
    monkeypatch.setattr(doctor, "LINKS", ("string",))

    problems = [finding for finding in doctor.examine() if finding.problem]

    assert [problem.name for problem in problems] == ["2 workers over string"]
    assert "links" in problems[0].problem
