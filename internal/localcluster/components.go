package localcluster

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nvidia/nvsentinel/internal/freeport"
)

// stages define for kwok how simulated nodes and pods behave.
//
//go:embed stages.yaml
var stages []byte

// serviceIP is the first address of the service range, which the API server takes for itself.
var serviceIP = net.IPv4(10, 96, 0, 1)

const (
	serviceRange = "10.96.0.0/16"
	podRange     = "10.128.0.0/9"
	nodeIP       = "10.64.0.1"
	issuer       = "https://kubernetes.default.svc.cluster.local"

	// The default client limits of 20 queries a second take minutes for a thousand nodes.
	queriesPerSecond = "500"
	queryBurst       = "1000"
)

// identity is what the parts of one cluster know of each other.
type identity struct {
	ca         *authority
	etcd       keyPair
	api        keyPair
	apiToEtcd  keyPair
	tokens     keyPair
	admin      keyPair
	etcdPort   int
	apiAddress string
	apiPort    int
	kubeconfig map[string]string // by program name; "admin" for people and tests
}

// newIdentity makes certificates, ports and kubeconfigs below dir, for an API server at an address.
func newIdentity(ctx context.Context, dir, address string) (*identity, error) {
	ca, err := newAuthority(filepath.Join(dir, "pki"))
	if err != nil {
		return nil, err
	}
	id := &identity{ca: ca, kubeconfig: map[string]string{}, apiAddress: address}
	if id.etcd, err = ca.server("etcd"); err != nil {
		return nil, err
	}
	if id.api, err = ca.server("apiserver", "kubernetes", "kubernetes.default", "kubernetes.default.svc", address); err != nil {
		return nil, err
	}
	if id.apiToEtcd, err = ca.client("apiserver-etcd", "kube-apiserver"); err != nil {
		return nil, err
	}
	if id.tokens, err = ca.signingKey("service-accounts"); err != nil {
		return nil, err
	}
	if id.admin, err = ca.client("admin", "local-cluster-admin", "system:masters"); err != nil {
		return nil, err
	}
	if id.etcdPort, err = freeport.Find(ctx); err != nil {
		return nil, err
	}
	if id.apiPort, err = freeport.Find(ctx); err != nil {
		return nil, err
	}
	return id, id.writeKubeconfigs(dir)
}

func (id *identity) apiURL() string {
	return "https://" + net.JoinHostPort(id.apiAddress, strconv.Itoa(id.apiPort))
}

func (id *identity) etcdURL() string { return "https://" + loopback(id.etcdPort) }

// The programs that are clients of the API server, which name their kubeconfigs.
const (
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	kwok              = "kwok"
)

// writeKubeconfigs gives every client program a user of its own.
func (id *identity) writeKubeconfigs(dir string) error {
	users := []struct {
		file, user string
		groups     []string
	}{
		{controllerManager, "system:kube-controller-manager", nil},
		{scheduler, "system:kube-scheduler", nil},
		{kwok, "local-cluster-kwok", []string{"system:masters"}},
	}
	for _, u := range users {
		pair, err := id.ca.client(u.file, u.user, u.groups...)
		if err != nil {
			return err
		}
		if err := id.writeKubeconfig(dir, u.file, pair); err != nil {
			return err
		}
	}
	return id.writeKubeconfig(dir, "admin", id.admin)
}

func (id *identity) writeKubeconfig(dir, name string, pair keyPair) error {
	path := filepath.Join(dir, name+".kubeconfig")
	user := &clientcmdapi.AuthInfo{ClientCertificateData: pair.cert, ClientKeyData: pair.key}
	if err := writeKubeconfig(path, id.apiURL(), id.ca.caPEM, user); err != nil {
		return err
	}
	id.kubeconfig[name] = path
	return nil
}

func (id *identity) etcdFlags(dir string) []string {
	return []string{
		"--name=local", "--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + id.etcdURL(), "--advertise-client-urls=" + id.etcdURL(),
		"--listen-peer-urls=http://127.0.0.1:0",
		"--cert-file=" + id.etcd.certFile, "--key-file=" + id.etcd.keyFile,
		"--client-cert-auth", "--trusted-ca-file=" + id.ca.file("ca.crt"),
		"--unsafe-no-fsync", "--log-level=warn",
	}
}

func (id *identity) apiServerFlags(dir string, controllers bool) []string {
	flags := []string{
		"--etcd-servers=" + id.etcdURL(), "--etcd-cafile=" + id.ca.file("ca.crt"),
		"--etcd-certfile=" + id.apiToEtcd.certFile, "--etcd-keyfile=" + id.apiToEtcd.keyFile,
		"--bind-address=" + id.apiAddress, "--advertise-address=" + id.apiAddress,
		"--secure-port=" + strconv.Itoa(id.apiPort),
		"--tls-cert-file=" + id.api.certFile, "--tls-private-key-file=" + id.api.keyFile,
		"--cert-dir=" + filepath.Join(dir, "pki"), "--client-ca-file=" + id.ca.file("ca.crt"),
		"--service-cluster-ip-range=" + serviceRange,
		"--service-account-issuer=" + issuer, "--api-audiences=" + issuer,
		"--service-account-key-file=" + id.tokens.certFile,
		"--service-account-signing-key-file=" + id.tokens.keyFile,
		"--authorization-mode=Node,RBAC", "--allow-privileged=true", "--profiling=false",
		"--enable-admission-plugins=NodeRestriction",
	}
	if id.apiAddress == localhost {
		// A loopback address is not a valid endpoint, and the default reconciler exits over it.
		flags = append(flags, "--endpoint-reconciler-type=none")
	}
	if !controllers {
		// Nobody makes service accounts or takes the not-ready taint off a node.
		flags = append(flags, "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
	}
	return flags
}

func (id *identity) controllerFlags() []string {
	return []string{
		"--kubeconfig=" + id.kubeconfig[controllerManager], "--secure-port=0", "--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + id.tokens.keyFile,
		"--root-ca-file=" + id.ca.file("ca.crt"),
		"--cluster-signing-cert-file=" + id.ca.file("ca.crt"), "--cluster-signing-key-file=" + id.ca.file("ca.key"),
		"--kube-api-qps=" + queriesPerSecond, "--kube-api-burst=" + queryBurst,
		"--concurrent-deployment-syncs=10", "--profiling=false",
		// How soon the taints of a node follow its Ready condition, and after what silence Kubernetes
		// calls it Unknown: simulated nodes have no Lease and report their status every half minute.
		"--node-monitor-period=1s", "--node-monitor-grace-period=1h",
	}
}

func (id *identity) schedulerFlags() []string {
	return []string{
		"--kubeconfig=" + id.kubeconfig[scheduler], "--secure-port=0", "--leader-elect=false",
		"--kube-api-qps=" + queriesPerSecond, "--kube-api-burst=" + queryBurst, "--profiling=false",
	}
}

// kwokFlags also writes the stages, which kwok does not start without. It keeps no Leases of
// nodes: kwok 0.8.0's queue of them stands still for good once a name is in it twice
// (pkg/utils/queue, pkg/utils/heap: the head that has a later double is never taken), as when a
// Node is deleted and comes back while the API server is away, and without its Lease a node's pods
// are let be.
func (id *identity) kwokFlags(dir string) ([]string, error) {
	path := filepath.Join(dir, "stages.yaml")
	if err := os.WriteFile(path, stages, 0o600); err != nil {
		return nil, fmt.Errorf("writing the stages of simulated nodes: %w", err)
	}
	return []string{
		"--kubeconfig=" + id.kubeconfig[kwok], "--config=" + path,
		"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=" + kwokAnnotation + "=fake",
		"--node-lease-duration-seconds=0", "--cidr=" + podRange, "--node-ip=" + nodeIP,
	}, nil
}
