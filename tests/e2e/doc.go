// Package e2e installs the chart, with the commands of its page, on a node that is
// real: a kubelet, kube-proxy and containerd of its own run the images of `make
// images` in namespaces of the kernel, and a played machine has them die and boot
// again. What is played beside is the hardware: its kernel log is a device of package
// kmsgtest, and its power a rack controller, which a plugin of the examples speaks to.
//
// It runs within namespaces that hack/e2e.sh makes (mounts, network, processes), so
// that its end is the end of all that it started.
package e2e
