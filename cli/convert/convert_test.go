package convert_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvidia/nvsentinel/cli/convert"
	"github.com/nvidia/nvsentinel/internal/testkit/reference"
)

// TestList: every name is whole, and no program has two answers for one name.
func TestList(t *testing.T) {
	seen, given := map[string]bool{}, 0
	for _, n := range convert.All() {
		if !slices.Contains(convert.Kinds(), n.Kind) || n.Name == "" || n.Here == "" && n.Note == "" {
			t.Errorf("%+v is not whole", n)
		}
		for _, program := range append(slices.Clone(n.At), strings.Repeat("all", 1-min(1, len(n.At)))) {
			at := string(n.Kind) + " " + program + " " + n.Name
			if program != "" && seen[at] {
				t.Errorf("%s is there twice", at)
			}
			seen[at] = true
		}
		if slices.Contains([]convert.Kind{convert.Flag, convert.Key, convert.Value, convert.Spelling}, n.Kind) {
			given++
		}
	}
	if given < 90 {
		t.Errorf("%d flags, keys and values, want 90 at least", given)
	}
}

// TestComingFromPage: the tables of the page are made of the list.
func TestComingFromPage(t *testing.T) {
	const file = "docs/reference/predecessor-names.md"
	page, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range convert.Kinds() {
		if !strings.Contains(string(page), "<!-- names: "+string(kind)+" -->") {
			t.Errorf("%s has no table of kind %s", file, kind)
		}
	}
	reference.Check(t, file, convert.Tables(string(page)))
}

func TestTOML(t *testing.T) {
	for _, tt := range []struct{ name, program, in, want string }{
		{"present spelling", "fault-quarantine", "# mine\ndryRun = true\n", `# mine
dryRun = true

# convert-config: changes made: 0, and no manual change is left
`},
		{"keys, tables and lists", "fault-quarantine", `label-prefix = "x/" # why
single-host = true
[[rule-sets]]
name = "a"
[rule-sets.match]
all = [
  {expression = "dry-run = 1"},
]
`, `# convert-config: label-prefix is now labelPrefix
labelPrefix = "x/" # why
# convert-config: single-host is now singleHost
singleHost = true
# convert-config: rule-sets is now ruleSets
[[ruleSets]]
name = "a"
# convert-config: rule-sets.match is now ruleSets.match
[ruleSets.match]
all = [
  {expression = "dry-run = 1"},
]

# convert-config: changes made: 4, and no manual change is left
`},
		{"names in another place", "janitor", "[global]\ncspProviderHost = 'h:1'\nexclusions = 1\n[terminateNodeController]\nexclusions = [\n  \"a=b\",\n]\n", `[global]
# convert-config: global.cspProviderHost is now cspPluginHost
cspPluginHost = 'h:1'
exclusions = 1
[terminateNodeController]
# convert-config: terminateNodeController.exclusions: use terminateNodeController.nodes.exclusions, a list of label selectors as texts
# exclusions = [
#   "a=b",
# ]

# convert-config: changes made: 2, and these need a manual change, see docs/tasks/migrate-from-nvsentinel.md:
#   - terminateNodeController.exclusions: use terminateNodeController.nodes.exclusions, a list of label selectors as texts
`},
		{"a table without a counterpart", "node-drainer", "[customDrain]\nenabled = true\n[customDrain.api]\nname = 'x'\n[[userNamespaces]]\nname = '*'\n", `# convert-config: customDrain: no counterpart: NOTE
# [customDrain]
# enabled = true
# convert-config: customDrain.api: no counterpart: NOTE
# [customDrain.api]
# name = 'x'
[[userNamespaces]]
name = '*'

# convert-config: changes made: 2, and these need a manual change, see docs/tasks/migrate-from-nvsentinel.md:
#   - customDrain: no counterpart: NOTE
#   - customDrain.api: no counterpart: NOTE
`},
		{"a spelling in a table that has one too", "event-exporter", "[exporter.failure_handling]\nmax_backoff = '1m'\nmax_retries = 3\n", `# convert-config: exporter.failure_handling is now exporter.failureHandling
[exporter.failureHandling]
# convert-config: exporter.failure_handling.max_backoff is now maxBackoff
maxBackoff = '1m'
# convert-config: exporter.failure_handling.max_retries: use exporter.failureHandling.deadLetterStatusCodes, nothing is dropped; a response that blames the event makes it a dead letter
# max_retries = 3

# convert-config: changes made: 3, and these need a manual change, see docs/tasks/migrate-from-nvsentinel.md:
#   - exporter.failure_handling.max_retries: use exporter.failureHandling.deadLetterStatusCodes, nothing is dropped; a response that blames the event makes it a dead letter
`},
		{"a store in parts", "node-drainer", "[datastore]\nprovider = \"postgresql\"\nhost = \"a,b\"\nport = 5433\ndatabase = \"d\"\nuser = \"u@x\"\npasswordFile = \"/pw\"\nsslMode = \"verify-full\"\nmaxConnections = 7\n[[userNamespaces]]\nname = '*'\n", `# convert-config: the parts of the store are now one address
store = "postgres://u%40x:PASSWORD@a:5433,b:5433/d?sslmode=verify-full&pool_max_conns=7"

[[userNamespaces]]
name = '*'

# convert-config: changes made: 1, and these need a manual change, see docs/tasks/migrate-from-nvsentinel.md:
#   - store: replace PASSWORD (it was in /pw), and preferably keep the whole address in a file and reference it: store = "${file:/path}" (docs/tasks/choose-a-store.md)
`},
		{"a store by its address", "node-drainer", "[datastore]\nuri = \"mongodb://u:secret@h:1,i:2/?replicaSet=r\"\ndatabase = \"d\"\nsslMode = \"prefer\"\nidleTime = '1m'\nconnectionLifetime = '1h'\nmine = 1\n", `# convert-config: the parts of the store are now one address
store = "mongodb://u:PASSWORD@h:1,i:2/d?replicaSet=r&maxIdleTimeMS=60000"

# convert-config: changes made: 1, and these need a manual change, see docs/tasks/migrate-from-nvsentinel.md:
#   - store: replace PASSWORD, and preferably keep the whole address in a file and reference it: store = "${file:/path}" (docs/tasks/choose-a-store.md)
#   - datastore.sslMode = prefer: a store of this kind has no such option (docs/tasks/choose-a-store.md)
#   - datastore.connectionLifetime = 1h: a store of this kind has no such option (docs/tasks/choose-a-store.md)
#   - datastore.mine: the address has no such option (docs/tasks/choose-a-store.md)
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := convert.TOML(tt.program, tt.in)
			if err != nil {
				t.Fatal(err)
			}
			text := got.String()
			if note := "node-drainer evicts by itself; Slurm workers"; strings.Contains(text, note) {
				i := strings.Index(text, note)
				text = strings.ReplaceAll(text, text[i:i+strings.Index(text[i:], "\n")], "NOTE")
			}
			if diff := cmp.Diff(tt.want, text); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if again, err := convert.TOML(tt.program, got.Text); err != nil || again.Changed != 0 {
				t.Errorf("converted again it has %d changes, %v", again.Changed, err)
			}
		})
	}
	leaky, err := convert.TOML("janitor", "[datastore]\nuri = 'mongodb://u:a/s3cr3t?x@h/d'\n")
	if err != nil || strings.Contains(leaky.String(), "s3cr3t") || !strings.Contains(leaky.Text, "mongodb://u:PASSWORD@h/d") {
		t.Errorf("a password with signs of an address: %s, %v", leaky, err)
	}
	if _, err := convert.TOML("janitor", "a = [\n"); err == nil || !strings.Contains(err.Error(), "reading TOML") {
		t.Errorf("what is no TOML: %v", err)
	}
}

func TestValues(t *testing.T) {
	const in = `global:
  dryRun: true
  faultQuarantine: {enabled: true}
  qps: 5
# its rules
fault-quarantine:
  replicaCount: 2
  ruleSets: []
  resources: {limits: {memory: 1Gi}}
syslog-health-monitor:
  processingStrategy: STORE_ONLY # for now
node-drainer:
  userNamespaces:
    - {name: "*", mode: Immediate}
postgresql:
  auth: {password: secret}
`
	const want = `global:
  dryRun: true
faultQuarantine:
  # convert-config: fault-quarantine.replicaCount is now faultQuarantine.replicas
  replicas: 2
  enabled: true
  resources: {limits: {memory: 1Gi}}
syslogHealthMonitor:
  # convert-config: syslog-health-monitor.processingStrategy is now syslogHealthMonitor.processingStrategy
  processingStrategy: PERSIST_ONLY # for now
eviction:
  # convert-config: node-drainer.userNamespaces is now eviction.userNamespaces
  userNamespaces:
    - {name: "*", mode: Immediate}
`
	got, err := convert.Values(in)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.SplitSeq(got.Text, "\n") {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	wantLeft := []string{
		"fault-quarantine.ruleSets: use [[ruleSets]] in faultQuarantine.config, TOML with the same keys (docs/reference/rule-sets.md)",
		"global.qps: use extraArgs: [--kube-api-qps=N] of a service, by default the API server's own limits bound it",
		"postgresql: use store.secretName, the chart brings a database for trials only",
	}
	slices.Sort(got.Left)
	if diff := cmp.Diff(wantLeft, got.Left); diff != "" {
		t.Errorf("left to do (-want +got):\n%s", diff)
	}
	sorted := func(text string) []string {
		all := strings.Split(strings.TrimSpace(text), "\n")
		slices.Sort(all)
		return all
	}
	if diff := cmp.Diff(sorted(want), sorted(strings.Join(lines, "\n"))); diff != "" {
		t.Errorf("values (-want +got):\n%s\n%s", diff, got.Text)
	}
	if again, err := convert.Values(got.Text); err != nil || again.Changed != 0 {
		t.Errorf("converted again they have %d changes, %v", again.Changed, err)
	}
	for _, wrong := range []string{"- a\n", "a: [\n"} {
		if _, err := convert.Values(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
	if got, err := convert.Values("# nothing\n"); err != nil || got.Changed != 0 {
		t.Errorf("nothing becomes %+v, %v", got, err)
	}
}

func TestVariables(t *testing.T) {
	got := convert.Variables("fault-quarantine", `LOG_LEVEL=info
export DATASTORE_PROVIDER=mongodb
DATASTORE_HOST="h"
DATASTORE_DATABASE=d
DATASTORE_USERNAME=u
DATASTORE_PASSWORD=secret
MONGODB_CA_CERT_PATH=/ca
AUDIT_ENABLED=true
UPLOAD_URL_BASE=x
`)
	want := `LOG_LEVEL=info
# convert-config: DATASTORE_PROVIDER is now a part of --store
# convert-config: DATASTORE_HOST is now a part of --store
# convert-config: DATASTORE_DATABASE is now a part of --store
# convert-config: DATASTORE_USERNAME is now a part of --store
# convert-config: DATASTORE_PASSWORD is now a part of --store
# convert-config: MONGODB_CA_CERT_PATH is now a part of --store
# convert-config: AUDIT_ENABLED: no counterpart: there is no audit log of writes: the API server's own has them, by account, and the records contain the reason
UPLOAD_URL_BASE=x
# convert-config: the parts of the store are now one address
--store=mongodb://u:PASSWORD@h/d?tlsCAFile=%2Fca
`
	if diff := cmp.Diff(want, got.Text); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if strings.Contains(got.String(), "secret") || len(got.Left) != 2 {
		t.Errorf("left to do: %v\n%s", got.Left, got)
	}
}

func TestFlags(t *testing.T) {
	got := convert.Flags("janitor", "--metrics-bind-address=:8080\n--enable-http2\n--ttl=1h\nhttp\n--enable-ttl=true")
	want := `# convert-config: --metrics-bind-address is now --metrics-address
--metrics-address=:8080
# convert-config: --enable-http2: no counterpart: metrics are served over HTTP/1.1
# --enable-http2
--ttl=1h
http
# convert-config: --enable-ttl: use --ttl, 0 keeps objects for ever
# --enable-ttl=true`
	if other := convert.Flags("gpu-health-monitor", "--dcgm-mode=local-managed\n--dcgm-mode=remote"); !strings.HasSuffix(other.Text, "\n--dcgm-mode=embedded\n--dcgm-mode=remote") || other.Changed != 1 {
		t.Errorf("a value of another name: %s", other.Text)
	}
	if diff := cmp.Diff(want, got.Text); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
