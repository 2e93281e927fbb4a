package scale

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/nvidia/nvsentinel/internal/freeport"
)

const (
	// brokenCheck is the policy by which the object monitor reports a Node, brokenLabel
	// what has it match.
	brokenCheck, brokenLabel = "NodeBroken", "scale/broken"
)

// suite is the control plane of the suite on a site.
type suite struct {
	*site
	services  []*service
	gates     []string // addresses of the gateways
	agents    string   // file of who may send what
	socketDir string   // folder of the connectors
}

// publishersFile is what the chart passes to connectors and gateways about publishers.
const publishersFile = `
[[publishers.agent]]
name = "syslog-health-monitor"
checks = ["SysLogs*"]
[[publishers.agent]]
name = "kubernetes-object-monitor"
account = "system:serviceaccount:nvsentinel:kubernetes-object-monitor"
clusterWide = true
checks = ["GPUNodeNotReady", "NVMLError", "GpuCountMismatch", "PodFailed", "NodeBroken"]
[[publishers.agent]]
name = "health-events-analyzer"
account = "system:serviceaccount:nvsentinel:health-events-analyzer"
clusterWide = true
checks = ["MultipleRemediations", "Repeated*", "XID*"]
[[publishers.agent]]
name = "nvsentinel-coverage"
account = "system:serviceaccount:nvsentinel:platform-connectors-cluster"
clusterWide = true
checks = ["GpuNodeUncovered"]
[[publishers.agent]]
name = "node-health-check"
account = "system:serviceaccount:nvsentinel:node-health-check"
clusterWide = true
checks = ["NodeHealthCheck"]
`

// morePolicies are beside those of the chart: one of Pods, and one that a figure can
// switch.
const morePolicies = `
[[policies]]
name = "PodFailed"
enabled = true
[policies.resource]
group = ""
version = "v1"
kind = "Pod"
[policies.predicate]
expression = "resource.status.phase == 'Failed' && resource.metadata.namespace == 'gpu-operator'"
[policies.nodeAssociation]
expression = "resource.spec.nodeName"
[policies.healthEvent]
componentClass = "Node"
isFatal = true
message = "a pod of the GPU operator has failed"
recommendedAction = "CONTACT_SUPPORT"
processingStrategy = "PERSIST_ONLY"

[[policies]]
name = "NodeBroken"
enabled = true
[policies.resource]
group = ""
version = "v1"
kind = "Node"
[policies.predicate]
expression = "resource.metadata.?labels[?'scale/broken'].orValue('') == 'true'"
[policies.healthEvent]
componentClass = "Node"
isFatal = true
message = "broken by label"
recommendedAction = "CONTACT_SUPPORT"
`

// roomyBudgets count as the built-in ones do, and have capacity for all nodes.
const roomyBudgets = `
[circuitBreaker]
percentage = 100
duration = "5m"
[[budgets]]
name = "at-once"
percentage = 100
[[budgets]]
name = "zone"
label = "topology.kubernetes.io/zone"
percentage = 100
`

// evictionFile is the chart's, with users' pods that are evicted at once.
const evictionFile = `
systemNamespaces = '^(nvsentinel|kube-system|gpu-operator|gmp-system|network-operator|skyhook)$'
[[%suserNamespaces]]
name = "training"
mode = "Immediate"
`

// newSuite prepares the services of a site.
func newSuite(ctx context.Context, s *site) (*suite, error) {
	u := &suite{site: s, socketDir: filepath.Join(s.dir, "n")}
	var err error
	if u.agents, err = s.file("connector.toml", publishersFile); err != nil {
		return nil, err
	}
	for range s.o.Sizes.Gateways {
		port, err := freeport.Find(ctx)
		if err != nil {
			return nil, err
		}
		u.gates = append(u.gates, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return u, os.MkdirAll(u.socketDir, 0o755)
}

// gateways are the workload between the connectors of nodes and the store.
func (u *suite) gateways() *service {
	return &service{
		name: "platform-connectors-gateway", binary: "platform-connectors", replicas: len(u.gates),
		args: []string{
			"--role=gateway", "--config=" + u.agents, "--store=" + u.dsn(), "--single-host", "--gateway-cert-file=" + u.cert, "--gateway-key-file=" + u.key,
			// All nodes have one address here.
			"--gateway-accounts=system:serviceaccount:nvsentinel:platform-connectors", fmt.Sprintf("--gateway-connections-per-address=%d", 2*u.nodes+16),
		},
		each: func(i int) []string { return []string{"--gateway-listen=" + u.gates[i], "--inspect-address="} },
	}
}

// connectors starts those of some nodes, in one process, and waits for their ingest endpoints.
func (u *suite) connectors(ctx context.Context, first, nodes int, more ...string) (*process, error) {
	p, err := u.launch(fmt.Sprintf("connectors-%d", first), u.o.Connectors, append([]string{
		fmt.Sprintf("--nodes=%d", nodes), fmt.Sprintf("--first=%d", first), "--dir=" + u.socketDir, "--kubeconfig=" + u.cluster.AdminKubeconfig(), "--identify",
		"--gateway=" + strings.Join(u.gates, ","), "--gateway-ca-file=" + u.cert, "--", "--config=" + u.agents,
	}, more...)...)
	if err != nil {
		return nil, err
	}
	err = u.until(ctx, fmt.Sprintf("the connectors of %d nodes", nodes), func(context.Context) (bool, error) {
		text, err := os.ReadFile(p.log)
		return strings.Contains("\n"+string(text), "\nready\n"), err
	})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, tail(p.log, 5))
	}
	return p, nil
}

// socket is the path of the socket of a node's connector.
func (u *suite) socket(node string) string { return filepath.Join(u.socketDir, node+".sock") }

// control are the services of the control plane, in the order in which they start.
func (u *suite) control(ctx context.Context) ([]*service, error) {
	files := map[string]string{
		"fault-quarantine.toml": roomyBudgets, "node-drainer.toml": fmt.Sprintf(evictionFile, ""),
		"fault-remediation.toml": "[eviction]" + fmt.Sprintf(evictionFile, "eviction."), "janitor.toml": "[global.nodes]\nexclusions = [\"node-role.kubernetes.io/control-plane\"]\n",
	}
	var err error
	if files["policies.toml"], err = u.policies(); err != nil {
		return nil, err
	}
	receiver, err := receive(ctx)
	if err != nil {
		return nil, err
	}
	files["event-exporter.toml"] = fmt.Sprintf("[exporter.metadata]\ncluster = \"scale\"\n[exporter.sink]\nendpoint = \"http://%s/\"\n", receiver)
	for name, text := range files {
		if _, err := u.file(name, text); err != nil {
			return nil, err
		}
	}
	tokens := map[string]string{}
	for _, publisher := range []string{"health-events-analyzer", "kubernetes-object-monitor", "node-health-check"} {
		pod, err := u.podOf(ctx, publisher, nodeName(0))
		if err != nil {
			return nil, err
		}
		if tokens[publisher], err = u.tokenFile(ctx, pod, connectorAudience); err != nil {
			return nil, err
		}
	}
	return u.list(tokens), nil
}

// list gives each service what the chart gives it.
func (u *suite) list(tokens map[string]string) []*service {
	config := func(file string) string { return "--config=" + filepath.Join(u.dir, file) }
	plugin, store, socket := "unix://"+filepath.Join(u.dir, "plugin.sock"), []string{"--store=" + u.dsn(), "--single-host"}, "unix://"+u.socket(nodeName(0))
	all := []*service{
		{name: "platform-connectors-cluster", binary: "platform-connectors", args: append([]string{
			"--role=cluster", "--config=" + u.agents, "--coverage", "--coverage-namespace=" + namespace, "--coverage-after=5m", "--coverage-processing-strategy=PERSIST_ONLY",
		}, store...)},
		{name: "fault-quarantine", args: append([]string{config("fault-quarantine.toml"), "--dry-run=false"}, store...)},
		{name: "node-drainer", args: append([]string{config("node-drainer.toml"), "--dry-run=false"}, store...)},
		{name: "fault-remediation", args: append([]string{config("fault-remediation.toml"), "--dry-run=false", "--lease-namespace=medik8s-leases"}, store...)},
		{name: "janitor", args: []string{config("janitor.toml"), "--csp-plugin-host=" + plugin}},
		{name: "repair-chain", args: []string{"--run-retention=720h"}},
		{name: "node-health-check", args: []string{
			"--dry-run=false", "--lease-namespace=medik8s-leases", "--bridge", "--platform-connector-socket=" + socket, "--platform-connector-token-path=" + tokens["node-health-check"],
		}},
		{name: "labeler", args: []string{"--grace-period=10m"}},
		{name: "health-events-analyzer", args: append([]string{"--processingStrategy=PROCESS", "--socket=" + socket, "--socket-token-path=" + tokens["health-events-analyzer"]}, store...)},
		{name: "kubernetes-object-monitor", args: []string{
			"--policy-config-path=" + filepath.Join(u.dir, "policies.toml"), "--publishers-config-path=" + u.agents, "--platform-connector-socket=" + socket, "--platform-connector-token-path=" + tokens["kubernetes-object-monitor"],
		}},
		{name: "event-exporter", args: append([]string{config("event-exporter.toml")}, store...)},
	}
	for _, v := range all {
		if v.binary == "" {
			v.binary = v.name
		}
		v.replicas, v.elects = u.o.Sizes.Replicas, true
		v.args = append(v.args, "--leader-elect", "--leader-elect-namespace="+namespace)
	}
	return append([]*service{{
		name: "csp-plugin-kwok", binary: "csp-plugin-kwok", replicas: 1, args: []string{"--listen=" + plugin, "--journal-file=" + filepath.Join(u.dir, "journal.jsonl")},
	}}, all...)
}

// receive takes events until ctx ends and throws them away.
func receive(ctx context.Context) (address string, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listening as the receiver of events: %w", err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: stopGrace}
	go func() { _ = server.Serve(listener) }() // until it is closed
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return listener.Addr().String(), nil
}
