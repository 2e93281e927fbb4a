package nodedrainer

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/internal/config"
	"github.com/nvidia/nvsentinel/internal/eviction"
)

func load(t *testing.T, text string, args ...string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "node-drainer.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := defaultConfig()
	flags := flag.NewFlagSet("node-drainer", flag.ContinueOnError)
	set, err := config.Bind(flags, &c)
	if err != nil {
		t.Fatal(err)
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c, set.Load(file, os.LookupEnv)
}

func TestThePredecessorsKeysStandAtTheTop(t *testing.T) {
	c, err := load(t, `
store = "sqlite:///tmp/x.db"
singleHost = true
evictionTimeoutInSeconds = "60"
systemNamespaces = "^kube-system$"
deleteAfterTimeoutMinutes = 30
partialDrainEnabled = true
evictionsPerSecond = 50.0
overdueAfterMinutes = 60
[[userNamespaces]]
name = "*"
mode = "Immediate"
[[ownerKinds]]
kind = "StatefulSet"
mode = "Immediate"
[kube]
kubeconfig = "/k"
[leaderElection]
enabled = true
`, "--dry-run", "--workers", "3", "--evictions-per-second", "2.5")
	if err != nil {
		t.Fatal(err)
	}
	want := defaultConfig()
	want.Store, want.SingleHost, want.DryRun, want.Workers = config.NewSecret("sqlite:///tmp/x.db"), true, true, 3
	want.EvictionTimeoutInSeconds, want.SystemNamespaces, want.DeleteAfterTimeoutMinutes = "60", "^kube-system$", 30
	want.UserNamespaces = []eviction.NamespaceRule{{Name: "*", Mode: eviction.Immediate}}
	want.OwnerKinds, want.OverdueAfterMinutes = []eviction.OwnerRule{{Kind: "StatefulSet", Mode: eviction.Immediate}}, 60
	want.PartialDrainEnabled, want.EvictionsPerSecond = true, 2.5
	want.Kube.Kubeconfig, want.Lease.Enabled = "/k", true
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

func TestProblemsAreJoinedAndNameTheirKeys(t *testing.T) {
	_, err := load(t, `
workers = 0
overdueAfterMinutes = 0
evictionsPerNode = -1
evictionsPerSecond = -0.5
evictionTimeoutInSeconds = "1m"
[[userNamespaces]]
name = "*"
[[ownerKinds]]
kind = "statefulsets"
mode = "Immediate"
[kube]
qps = -1.0
`)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"store (--store)", "workers (--workers) is 0", "evictionsPerNode", "overdueAfterMinutes (--overdue-after-minutes) is 0", "ownerKinds[0].kind", "evictionsPerSecond (--evictions-per-second) is -0.5", "evictionTimeoutInSeconds", "userNamespaces[0].mode", "kube-api-qps"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not name %s", err, want)
		}
	}
}

func TestAnUnknownKeyIsAnError(t *testing.T) {
	if _, err := load(t, "store = \"x\"\ndeleteAfterTimeout = 3\n"); err == nil || !strings.Contains(err.Error(), "deleteAfterTimeout") {
		t.Errorf("error %v, want one that names deleteAfterTimeout", err)
	}
}
