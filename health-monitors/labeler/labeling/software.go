package labeling

import (
	"regexp"
	"slices"
	"strings"
)

const (
	// gpuLabel marks nodes with GPUs; GPU feature discovery writes it.
	gpuLabel = "nvidia.com/gpu.present"
	// kataLabel is that of Kata's own deployment.
	kataLabel = "katacontainers.io/kata-runtime"

	yes = "true"
	no  = "false"
)

// dcgmImage finds the version in an image's tag: registry/path/dcgm:4.5.2-1-ubuntu.
var dcgmImage = regexp.MustCompile(`dcgm:([0-9]{1,2})\.`)

// dcgm is the version of the DCGM pod on the Node. One that is there keeps the
// label, Ready or not: a node whose DCGM fails is the one to be watched.
func (d *decision) dcgm(key string) (string, Reason) {
	is := d.Labels[key]
	if d.AssumeDCGM != "" && d.Labels[gpuLabel] == yes {
		return d.AssumeDCGM, Assumed
	}
	if len(d.DCGM) == 0 {
		return d.without(key, d.DCGMAnywhere)
	}
	pod := best(d.DCGM)
	version := versionOf(pod)
	switch {
	case version == "":
		return is, NoVersion
	case is == version:
		return is, Seen
	case d.RequireReady && !pod.Ready:
		return is, NotReady
	}
	return version, Seen
}

// driver returns the label of the driver: it is on the Node by a driver pod, or by the
// configuration. The label is written once a pod was Ready, and stays while one is there.
func (d *decision) driver(key string) (string, Reason) {
	switch {
	case d.AssumeDriver && d.Labels[gpuLabel] == yes:
		return yes, Assumed
	case len(d.Driver) == 0:
		return d.without(key, d.DriverAnywhere)
	case d.Labels[key] == yes || best(d.Driver).Ready:
		return yes, Seen
	}
	return "", NotReady
}

// without is the value of a label whose pod is not on the Node.
func (d *decision) without(key string, anywhere bool) (string, Reason) {
	is := d.Labels[key]
	switch {
	case is == "":
		return "", Absent
	case !anywhere:
		d.requeueAfter(d.Grace)
		return is, NoneAnywhere
	case d.missing(key):
		return "", Gone
	}
	return is, Waits
}

// kata returns whether a label marks the Node as running Kata.
func (d *decision) kata(string) (string, Reason) {
	for _, label := range []string{kataLabel, d.KataLabel} {
		if label != "" && slices.Contains([]string{yes, "enabled", "1", "yes"}, strings.ToLower(d.Labels[label])) {
			return yes, Seen
		}
	}
	return no, Seen
}

// best is the pod that counts where an update has several: a Ready one, one that
// stays, the newest.
func best(pods []Pod) Pod {
	return slices.MaxFunc(pods, func(a, b Pod) int {
		for _, better := range [][2]bool{{a.Ready, b.Ready}, {!a.Ending, !b.Ending}} {
			if better[0] != better[1] {
				return map[bool]int{true: 1, false: -1}[better[0]]
			}
		}
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// versionOf is "4.x" of an image dcgm:4.5.2, or empty.
func versionOf(p Pod) string {
	for _, image := range p.Images {
		if m := dcgmImage.FindStringSubmatch(image); m != nil {
			return m[1] + ".x"
		}
	}
	return ""
}
