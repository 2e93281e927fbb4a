package timeline

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
)

const tracedRuns = `
- metadata: {name: run-1, creationTimestamp: "2026-03-01T12:00:00Z"}
  spec: {nodeName: gpu-1, chain: reboot-and-validate, fault: {record: 0190-r1, action: RESTART_VM, checkName: SysLogsXIDError, errorCode: ["79"], message: "GPU has fallen off the bus"}}
  status:
    conditions: [{type: Succeeded, status: "True", reason: Done, message: every step has ended}]
    steps:
    - {name: collect, state: Failed, reason: UnknownTimeout, message: "no result within 10m0s", finishedAt: "2026-03-01T12:10:00Z", object: {apiVersion: batch/v1, kind: Job, namespace: nvsentinel, name: gpu-1-aa, uid: u1}}
    - name: reboot
      state: Done
      reason: MatchedCondition
      finishedAt: "2026-03-01T12:14:00Z"
      object: {apiVersion: janitor.dgxc.nvidia.com/v1alpha1, kind: RebootNode, name: gpu-1-bb, uid: u2, definitionDigest: "sha256:dddddddddddd0000", inputDigest: "sha256:eeeeeeeeeeee0000"}
      outputs: [{name: boot, digest: "sha256:1111111111110000", preview: "b2\n", value: '"b2"', definitionDigest: "sha256:dddddddddddd0000", lastTransitionTime: "2026-03-01T12:14:00Z"}]
    - name: validate
      state: Done
      finishedAt: "2026-03-01T12:40:00Z"
      object: {apiVersion: batch/v1, kind: Job, namespace: nvsentinel, name: gpu-1-cc, uid: u3}
      inputs: [{name: boot, digest: "sha256:1111111111110000", preview: "b2\n"}, {name: logs, digest: "sha256:2222222222220000", preview: "a: 1\nb: 2\n"}]
      outputs: [{name: report, digest: "sha256:3333333333330000", preview: "https://reports/7\n", value: '"x"', definitionDigest: "sha256:f", lastTransitionTime: "2026-03-01T12:40:00Z"}]
- metadata: {name: run-2, creationTimestamp: "2026-03-02T12:00:00Z"}
  spec: {nodeName: gpu-2, chain: reboot-and-validate}
  status:
    conditions: [{type: Succeeded, status: "False", reason: SessionOver, message: "step reboot: SessionOver"}]
    steps: [{name: reboot, state: Waiting, reason: SessionOver}]
`

func runs(t *testing.T) (out []v1alpha1.RepairRun) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(tracedRuns), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestTrace: from a result back to the fault, and forward.
func TestTrace(t *testing.T) {
	var out strings.Builder
	if err := Follow("33333333", runs(t)).Write(&out, Style{}); err != nil {
		t.Fatal(err)
	}
	const want = `run run-1, chain reboot-and-validate, node gpu-1: succeeded
  for record 0190-r1, RESTART_VM SysLogsXIDError 79: GPU has fallen off the bus
  collect: Failed 2026-03-01 12:10:00, Job nvsentinel/gpu-1-aa (UnknownTimeout: no result within 10m0s)
  reboot: Done 2026-03-01 12:14:00, RebootNode gpu-1-bb
    > boot  sha256:111111111111  b2
  validate: Done 2026-03-01 12:40:00, Job nvsentinel/gpu-1-cc
    < boot  sha256:111111111111  from reboot.boot
    < logs  sha256:222222222222  a: 1 ...
*   > report  sha256:333333333333  https://reports/7
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
	for query, want := range map[string]string{
		"sha256:11111111": "run-1", "sha256:1111111": "", "22222222": "run-1", "dddddddd": "run-1", "eeeeeeee": "run-1", "0190-r1": "run-1",
		"gpu-1-bb": "run-1", "rebootnode/gpu-1-bb": "run-1", "nvsentinel/gpu-1-cc": "run-1", "job/gpu-1-bb": "", "u3": "run-1",
		"run-2": "run-2", "gpu-2": "run-2", "gpu": "", "": "",
	} {
		got := ""
		for _, r := range Follow(query, runs(t)).Runs {
			got += r.Name
		}
		if got != want {
			t.Errorf("%q is known to %q, want %q", query, got, want)
		}
	}
	if all := Follow("gpu-1", append(runs(t), runs(t)...)).Runs; len(all) != 2 {
		t.Errorf("%d runs", len(all))
	}
	out.Reset()
	if err := Follow("nothing", runs(t), Source{Name: "API server", Problem: "away"}).Write(&out, Style{}); err != nil || out.String() != "no repair chain run found for nothing\n! API server not read: away\n" {
		t.Errorf("%s, %v", &out, err)
	}
}

// TestTheFaultOfARun is reported if the run was begun for one, and marked if it is what
// was asked for; why it is not over, or failed, is reported too.
func TestTheFaultOfARun(t *testing.T) {
	record := v1alpha1.Fault{Record: "0190-r1", Action: "RESTART_VM", CheckName: "check", Message: "m"}
	action := record
	action.Record = ""
	for _, tt := range []struct {
		name, query string
		run         TracedRun
		want        string
	}{
		{"of a record", "gpu-1", TracedRun{Fault: record, Outcome: "succeeded", Reason: "Done"}, "  for record 0190-r1, RESTART_VM check: m\n"},
		{"of the record that was asked for", "0190-r1", TracedRun{Fault: record, Outcome: "succeeded"}, "* for record 0190-r1, RESTART_VM check: m\n"},
		{"begun by hand, for an action", "", TracedRun{Fault: action, Outcome: "succeeded"}, "  for record none, RESTART_VM check: m\n"},
		{"of no fault", "gpu-1", TracedRun{Outcome: "succeeded"}, ""},
		{"that failed", "gpu-1", TracedRun{Outcome: "failed", Reason: "SessionOver", Message: "m"}, "  SessionOver: m\n"},
		{"that is under way", "gpu-1", TracedRun{Outcome: "under way"}, ""},
	} {
		p := Style{}.page()
		Trace{Query: tt.query}.run(p, tt.run)
		if _, got, _ := strings.Cut(p.out.String(), "\n"); got != tt.want {
			t.Errorf("a run %s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
