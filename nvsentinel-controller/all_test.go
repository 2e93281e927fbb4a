package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }

const waitTimeout = 4 * time.Minute

// TestAllInOneProcess runs every controller in one process, as profile small of the chart
// does: the account of the process may impersonate theirs and nothing else. Each takes its
// own lease by the rights of its own account, and has its metrics under its name. When one
// loses its lease, the process ends and reports which.
func TestAllInOneProcess(t *testing.T) {
	testkit.Long(t, "internal/daemon TestSeveralAreOneProcess, TestNoneIsLeftBehind with controllers of the test")
	binary, err := testkit.Controller(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	cluster := localcluster.ForTest(t, localcluster.Options{})
	install(t, cluster)
	args := append([]string{"--metrics-address=127.0.0.1:0", "--log-format=json"}, flags(t, cluster)...)
	p := &running{cmd: exec.Command(binary, args...), over: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := testkit.StartChild(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.over) }()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.over
		if t.Failed() {
			t.Log(p.text())
		}
	})
	metrics := ""
	testkit.Until(t, waitTimeout, func() bool {
		select {
		case <-p.over:
			t.Fatal("the process has ended")
		default:
		}
		metrics = p.metrics(t)
		for _, c := range controllers() {
			if !regexp.MustCompile(`nvsentinel_leader_election_is_leader\{controller="` + c.Name + `",task="\w+"\} 1`).MatchString(metrics) {
				return false
			}
		}
		return true
	})
	if n := len(regexp.MustCompile(`(?m)^go_goroutines `).FindAllString(metrics, -1)); n != 1 {
		t.Errorf("the process has go_goroutines %d times", n)
	}
	leases := cluster.Client().CoordinationV1().Leases("nvsentinel")
	lease, err := leases.Get(t.Context(), "labeler-labels", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	other := "another process"
	testkit.Until(t, waitTimeout, func() bool {
		lease.Spec.HolderIdentity = &other
		_, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		if err == nil {
			return true
		}
		lease, err = leases.Get(t.Context(), "labeler-labels", metav1.GetOptions{})
		return err != nil
	})
	<-p.over
	if code := p.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.text(), `"msg":"controller failed","service":"labeler"`) {
		t.Errorf("exit code %d; the log does not say that the labeler has failed", code)
	}
}

// install applies what the chart installs, and the account of the process.
func install(t *testing.T, cluster *localcluster.Cluster) {
	t.Helper()
	var names []string
	for _, c := range controllers() {
		names = append(names, c.Name)
	}
	text, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	const chart = "../distros/helm/nvsentinel/"
	var files []string
	// The rights bring the namespace, without which nothing else can be applied.
	for _, pattern := range []string{"crds/*.yaml", "manifests/crds/*.yaml", "manifests/rbac.yaml", "manifests/*.yaml"} {
		found, err := filepath.Glob(chart + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		if filepath.Base(file) == "gpu-reset.yaml" { // needs the namespace of the GPU services
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), bytes.NewReader(content)); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if err := cluster.Apply(t.Context(), strings.NewReader(fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: nvsentinel-controller, namespace: nvsentinel}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: nvsentinel-controller, namespace: nvsentinel}
rules:
  - {apiGroups: [""], resources: [serviceaccounts], resourceNames: %s, verbs: [impersonate]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: nvsentinel-controller, namespace: nvsentinel}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: nvsentinel-controller}
subjects:
  - {kind: ServiceAccount, name: nvsentinel-controller, namespace: nvsentinel}
`, text))); err != nil {
		t.Fatal(err)
	}
}

// flags are those of all controllers.
func flags(t *testing.T, cluster *localcluster.Cluster) []string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	own := map[string][]string{
		"janitor":                   {"csp-plugin-host=unix://" + filepath.Join(dir, "plugin.sock")},
		"event-exporter":            {"config=" + write("exporter.toml", "[exporter.metadata]\ncluster = \"c\"\n[exporter.sink]\nendpoint = \"http://127.0.0.1:9/\"\n")},
		"health-events-analyzer":    {"socket=unix://" + filepath.Join(dir, "connector.sock")},
		"kubernetes-object-monitor": {"platform-connector-socket=unix://" + filepath.Join(dir, "connector.sock"), "policy-config-path=../examples/policies/aks-scheduled-events.toml"},
	}
	for _, stored := range []string{"fault-quarantine", "node-drainer", "fault-remediation", "health-events-analyzer", "event-exporter"} {
		own[stored] = append(own[stored], "store=sqlite://"+filepath.Join(dir, "records.db"), "single-host")
	}
	account, err := cluster.ServiceAccountKubeconfig(t.Context(), "nvsentinel", "nvsentinel-controller", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	var names, out []string
	for _, c := range controllers() {
		as, err := clientcmd.LoadFromFile(account)
		if err != nil {
			t.Fatal(err)
		}
		for _, user := range as.AuthInfos {
			user.Impersonate = "system:serviceaccount:nvsentinel:" + c.Name
		}
		file := filepath.Join(dir, c.Name+".kubeconfig")
		if err := clientcmd.WriteToFile(*as, file); err != nil {
			t.Fatal(err)
		}
		names = append(names, c.Name)
		all := append([]string{"kubeconfig=" + file, "leader-elect", "leader-elect-lease-duration=60s", "leader-elect-renew-deadline=45s"}, own[c.Name]...)
		for _, flag := range all {
			out = append(out, "--"+c.Name+"."+flag)
		}
	}
	return append([]string{"--controllers=" + strings.Join(names, ",")}, out...)
}

// running is the process under test, with its log.
type running struct {
	cmd  *exec.Cmd
	over chan struct{}
	mu   sync.Mutex
	log  bytes.Buffer
}

func (r *running) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(b)
}

func (r *running) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// metrics is the page of the process, empty while it does not serve one.
func (r *running) metrics(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`probe and metrics server started.*"address":"([^"]+)"`).FindStringSubmatch(r.text())
	if found == nil {
		return ""
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+found[1]+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return ""
	}
	return string(text)
}
