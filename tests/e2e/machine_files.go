package e2e

// The configuration of a node's parts. Nothing is below the folders that Kubernetes uses on a
// machine that runs it itself.
const (
	containerdConfig = `version = 2
root = "DIR/containerd/root"
state = "DIR/containerd/state"
[grpc]
  address = "DIR/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + registry + `/pause:v1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "DIR/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
`
	kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /nvsentinel-e2e
containerRuntimeEndpoint: unix://DIR/containerd.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
localStorageCapacityIsolation: false
evictionHard: {memory.available: 50Mi, nodefs.available: "1%", imagefs.available: "1%"}
resolvConf: ""
clusterDomain: cluster.local
clusterDNS: [ADDRESS]
providerID: e2e://` + nodeName + `
nodeStatusUpdateFrequency: 5s
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
`
	proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: POD_RANGE
clientConnection: {kubeconfig: PROXY_KUBECONFIG}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`
	// Each pod has a link and a route of its own: packets between pods pass the node's
	// tables, whatever the kernel does with bridges.
	podNetwork = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "dataDir": "DIR/addresses", "ranges": [[{"subnet": "POD_RANGE"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`
)
