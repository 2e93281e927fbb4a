package chart

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nvidia/nvsentinel/internal/predecessor"
)

// services are the programs that a flag or a file can be given to, by the names they
// have for themselves.
var services = map[string]string{
	"platform-connectors": "platform-connectors", "node-connector": "node-connector", "syslog-health-monitor": "syslog-health-monitor",
	"gpu-health-monitor": "gpu-health-monitor",
	"nic-health-monitor": "nic-health-monitor", "metadata-collector": "metadata-collector",
	"kubernetes-object-monitor": "kubernetes-object-monitor", "labeler": "labeler", "health-events-analyzer": "health-events-analyzer",
	"fault-quarantine": "fault-quarantine", "node-drainer": "node-drainer", "fault-remediation": "fault-remediation",
	"event-exporter": "event-exporter", "janitor": "janitor", "csp-plugin-aws": "aws", "csp-plugin-azure": "azure", "csp-plugin-gcp": "gcp",
	"csp-plugin-kwok": "kwok", "csp-plugin-oci": "oci", "csp-health-monitor": "csp-health-monitor-aws",
}

// TestFlagsAndKeysOfTheEarlierOne: each program ends with each of them, and names
// ours. None of them is a flag or a key of ours by now.
func TestFlagsAndKeysOfTheEarlierOne(t *testing.T) {
	bin, err := buildServices()
	if err != nil {
		t.Fatal(err)
	}
	said := func(service string, args ...string) string {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, services[service]), args...).CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 {
			t.Errorf("%s %v ended with %v, want status 2", service, args, err)
		}
		return string(out)
	}
	given := 0
	for service := range services {
		var keys []string
		want := map[string]string{}
		for _, n := range predecessor.All() {
			switch {
			case n.For(service) && n.Kind == predecessor.Flag:
				given++
				if out := said(service, "--"+n.Name+"=x", "--check-config"); !strings.Contains(out, n.Text()) {
					t.Errorf("%s --%s says\n%s\nwant %q", service, n.Name, out, n.Text())
				}
			case n.For(service) && n.Kind == predecessor.Key:
				given++
				keys = append(keys, where[n.Name]+n.Name+" = 1")
				want[where[n.Name]+n.Name] = n.Text()
			}
		}
		if len(keys) == 0 {
			continue
		}
		slices.Sort(keys)
		file := filepath.Join(t.TempDir(), "service.toml")
		if err := os.WriteFile(file, []byte(strings.Join(keys, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		out := said(service, "--config="+file, "--check-config")
		for key, text := range want {
			if line := fmt.Sprintf("unknown key %q: %s", present.Replace(key), text); !strings.Contains(out, line) {
				t.Errorf("%s says of its file\n%s\nwant %q", service, out, line)
			}
		}
	}
	if given < 60 {
		t.Errorf("%d flags and keys were tried, want 60 at least", given)
	}
}

// present respells the tables whose old spelling is read: what is said of a key
// inside names the table as the documentation does.
var present = strings.NewReplacer("failure_handling", "failureHandling")

// where are the tables of keys whose names in the list have none.
var where = map[string]string{
	"impactedEntityScope": "remediationActions.COMPONENT_RESET.",
	"cspProviderHost":     "global.", "cspProviderCAPath": "rebootNodeController.", "cspProviderInsecure": "global.", "cspProviderTokenPath": "terminateNodeController.",
}
