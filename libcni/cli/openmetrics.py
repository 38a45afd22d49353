"""Write a doctor's report in the OpenMetrics text format."""

from __future__ import annotations

import time
from collections import Counter

import libcni
import libcni.diagnosis
from libcni.cli.render import one_line


def openmetrics(report: libcni.diagnosis.DoctorReport) -> str:
    """Return the report as metrics: findings, numbers of checked and unchecked objects, and the time of the run.

    Each check has a sample for each severity, even without findings, so that an alert can tell 0 from no data.
    """
    checked = Counter(checked.check for checked in report.checked)
    not_checked = Counter(not_checked.check for not_checked in report.not_checked)
    checks = dict.fromkeys([*checked, *not_checked, *(finding.check for finding in report.findings)])
    findings = Counter((finding.check, finding.severity) for finding in report.findings)
    lines = ["# TYPE libcni_doctor_findings gauge", "# HELP libcni_doctor_findings Findings of libcni doctor."]
    for check in checks:
        for severity in ("error", "warning", "note"):
            labels = f'{{check="{check}",severity="{severity}"}}'
            lines.append(f"libcni_doctor_findings{labels} {findings[check, severity]}")
    for name, text, counts in (
        ("checked", "Things that were checked.", checked),
        ("not_checked", "Things that could not be checked.", not_checked),
    ):
        lines += [f"# TYPE libcni_doctor_{name} gauge", f"# HELP libcni_doctor_{name} {text}"]
        lines += [f'libcni_doctor_{name}{{check="{check}"}} {counts[check]}' for check in checks]
    pods = Counter((pod, finding.severity) for finding in report.findings for pod in finding.pods)
    lines += ["# TYPE libcni_doctor_pod_findings gauge", "# HELP libcni_doctor_pod_findings Findings about each pod."]
    for (pod, severity), count in pods.items():
        # Any program may have written the record. An unescaped quote in a label makes the whole file unusable.
        name = one_line(pod).replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'libcni_doctor_pod_findings{{pod="{name}",severity="{severity}"}} {count}')
    # node_exporter also serves an old file. With the time an alert can detect that the doctor no longer runs.
    lines += [
        "# TYPE libcni_doctor_run_timestamp_seconds gauge",
        "# HELP libcni_doctor_run_timestamp_seconds When the doctor ran.",
        f"libcni_doctor_run_timestamp_seconds {time.time():.3f}",
        "# EOF",
    ]
    return "\n".join(lines)
