// Package localcluster is a Kubernetes control plane of this machine: etcd, kube-apiserver and,
// where wanted, kube-controller-manager, kube-scheduler and simulated GPU nodes (kwok), built
// by package controlplane. It serves tests and the demo; no service of
// the product imports it.
//
// Tests that only need an API server share one per test binary:
//
//	func TestMain(m *testing.M) { os.Exit(localcluster.Main(m)) }
//
//	func TestX(t *testing.T) {
//		cluster := localcluster.ForTest(t, localcluster.Options{})
//		namespace := cluster.Namespace(t)
//		...
//	}
//
// A cluster leaves nothing behind: its processes die with the process that started it, however
// that one ends, and its folder is removed.
package localcluster
