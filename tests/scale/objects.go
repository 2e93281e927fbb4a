package scale

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

const (
	// imagesOfNode is how many images a kubelet names in the status of its Node, at most.
	imagesOfNode = 50
	// features is how many labels the GPU operator's and the node feature discovery
	// write, zones over how many zones the nodes are spread.
	features, zones = 40, 8
)

func nodeName(i int) string { return fmt.Sprintf("gpu-%d", i) }

// realNode is a Node as the kubelet of a GPU machine, its feature discoveries and
// its network plugin write it: some 14 KB as protobuf.
func realNode(i int) *corev1.Node {
	name := nodeName(i)
	labels := map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		corev1.LabelInstanceTypeStable: "p5.48xlarge", corev1.LabelTopologyRegion: "us-west-2",
		corev1.LabelTopologyZone: fmt.Sprintf("us-west-2-%d", i%zones), localcluster.GPULabel: "true",
		"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.deploy.dcgm": "true",
		"nvidia.com/gpu.deploy.driver": "true",
	}
	for j := range features {
		labels[fmt.Sprintf("feature.node.kubernetes.io/cpu-cpuid.FEATURE%d", j)] = "true"
	}
	resources := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("192"), corev1.ResourceMemory: resource.MustParse("2097152Mi"),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("8Ti"),
		localcluster.GPUResource: resource.MustParse("8"), "vpc.amazonaws.com/efa": resource.MustParse("32"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{
			"node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true",
			"projectcalico.org/IPv4Address": address(i) + "/16", "csi.volume.kubernetes.io/nodeid": `{"csi.example.com":"` + name + `"}`,
			"nfd.node.kubernetes.io/feature-labels": strings.Repeat("cpu-cpuid.FEATURE,", features),
		}},
		Spec: corev1.NodeSpec{ProviderID: fmt.Sprintf("aws:///us-west-2a/i-%017x", i), PodCIDR: fmt.Sprintf("10.%d.%d.0/24", i/256%256, i%256)},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources, Conditions: healthy(time.Now()), Images: images(),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address(i)}, {Type: corev1.NodeHostName, Address: name}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: digest(name)[:32], SystemUUID: uuidOf(name), BootID: uuidOf(name + "-boot"), KernelVersion: "6.8.0-1024-aws",
				OSImage: "Ubuntu 24.04.2 LTS", ContainerRuntimeVersion: "containerd://1.7.27", KubeletVersion: "v1.33.1", OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
}

// booted is since when every node is healthy. A heartbeat does not change it: a watcher for
// changes of conditions sees none.
var booted = metav1.NewTime(time.Now().Add(-time.Hour))

// healthy are a kubelet's conditions with the time of its last look.
func healthy(now time.Time) []corev1.NodeCondition {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message,
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: booted,
		}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
	}
}

func images() []corev1.ContainerImage {
	out := make([]corev1.ContainerImage, imagesOfNode)
	for i := range out {
		image := fmt.Sprintf("nvcr.io/nvidia/training/framework-%d", i)
		out[i] = corev1.ContainerImage{Names: []string{image + "@sha256:" + digest(image), image + ":25.03-py3"}, SizeBytes: 1 << 30}
	}
	return out
}

func digest(of string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(of))) }

func uuidOf(name string) string {
	d := digest(name)
	return fmt.Sprintf("%s-%s-4%s-8%s-%s", d[:8], d[8:12], d[13:16], d[17:20], d[20:32])
}

func address(i int) string { return fmt.Sprintf("10.%d.%d.%d", 64+i/65536, i/256%256, i%256) }

// daemons are the pods that every node has, by namespace, value of the label app,
// and account; the others are users'.
var daemons = []struct{ namespace, app string }{
	{"kube-system", "kube-proxy"}, {"kube-system", "calico-node"},
	{"gpu-operator", "nvidia-driver-daemonset"}, {"gpu-operator", "nvidia-dcgm"}, {"gpu-operator", "nvidia-device-plugin-daemonset"},
	{namespace, "platform-connectors"}, {namespace, "syslog-health-monitor"},
}

// users is the namespace of the users' pods.
const users = "training"

// realPod is pod j of node i: the first are the node's daemons.
func realPod(i, j int) *corev1.Pod {
	where, app, owner := users, fmt.Sprintf("job-%d", i%100), "Job"
	if j < len(daemons) {
		where, app, owner = daemons[j].namespace, daemons[j].app, "DaemonSet"
	}
	name := fmt.Sprintf("%s-%s-%d", app, digest(nodeName(i))[:12], j)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: where, Name: name, Annotations: map[string]string{"cni.projectcalico.org/podIP": address(i) + "/32", "cni.projectcalico.org/containerID": digest(name)},
			Labels: map[string]string{
				"app": app, "app.kubernetes.io/name": app, "app.kubernetes.io/part-of": where, "controller-revision-hash": digest(app)[:10], "pod-template-generation": "1",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: app, UID: types.UID(uuidOf(app)), Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			// Evicted pods are gone at once: there is no kubelet to end them.
			NodeName: nodeName(i), TerminationGracePeriodSeconds: new(int64(0)), Containers: []corev1.Container{container("main"), container("sidecar")},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/" + app}}},
			},
		},
	}
	if where == namespace {
		pod.Spec.ServiceAccountName = app
	}
	return pod
}

// container has what a template of a user or an operator brings: some 1 KB.
func container(name string) corev1.Container {
	c := corev1.Container{
		Name: name, Image: "nvcr.io/nvidia/training/framework-1:25.03-py3", Args: []string{"--config=/etc/" + name + "/config.yaml", "--log-format=json"},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "data", MountPath: "/data"}, {Name: "host", MountPath: "/host", ReadOnly: true},
		},
	}
	for k := range 10 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", k), Value: strings.Repeat("v", 40)})
	}
	return c
}

// running is the status that a kubelet gives to a pod, of some 2 KB.
func running(pod *corev1.Pod, now time.Time) corev1.PodStatus {
	since := metav1.NewTime(now)
	status := corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "10.64.0.1", PodIP: "10.128.0.1", PodIPs: []corev1.PodIP{{IP: "10.128.0.1"}}, StartTime: &since, QOSClass: corev1.PodQOSBurstable}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: since})
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: true, Started: new(true), Image: c.Image, ImageID: c.Image + "@sha256:" + digest(c.Image), ContainerID: "containerd://" + digest(pod.Name+c.Name),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}},
		})
	}
	return status
}
