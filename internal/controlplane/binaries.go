// Package controlplane builds a Kubernetes control plane from the Go modules pinned in
// hack/controlplane. It serves tests and the demo, and imports little, so that it can show the
// progress of the first build on a machine before anything else is compiled.
package controlplane

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/nvidia/nvsentinel/internal/gobuild"
)

// recipe names how binaries are linked; it is part of the cache key, so a changed recipe causes
// a rebuild.
const recipe = "nocgo,stripped,3"

// Binaries are the paths of the control plane's programs.
type Binaries struct {
	Etcd              string
	APIServer         string
	ControllerManager string
	Scheduler         string
	Kwok              string
}

var (
	etcd              = gobuild.Program{Name: "etcd", Package: "go.etcd.io/etcd/server/v3"}
	apiServer         = gobuild.Program{Name: "kube-apiserver", Package: "k8s.io/kubernetes/cmd/kube-apiserver"}
	controllerManager = gobuild.Program{Name: "kube-controller-manager", Package: "k8s.io/kubernetes/cmd/kube-controller-manager"}
	scheduler         = gobuild.Program{Name: "kube-scheduler", Package: "k8s.io/kubernetes/cmd/kube-scheduler"}
	kwok              = gobuild.Program{Name: "kwok", Package: "sigs.k8s.io/kwok/cmd/kwok"}
	kubelet           = gobuild.Program{Name: "kubelet", Package: "k8s.io/kubernetes/cmd/kubelet"}
	kubeProxy         = gobuild.Program{Name: "kube-proxy", Package: "k8s.io/kubernetes/cmd/kube-proxy"}
	kubectl           = gobuild.Program{Name: "kubectl", Package: "k8s.io/kubernetes/cmd/kubectl"}
)

// apiPrograms suffice for an API server, allPrograms run nodes and workloads as well.
var (
	apiPrograms = []gobuild.Program{etcd, apiServer}
	allPrograms = append(slices.Clone(apiPrograms), controllerManager, scheduler, kwok)
)

func binariesIn(dir string) Binaries {
	return Binaries{
		Etcd:              filepath.Join(dir, etcd.Name),
		APIServer:         filepath.Join(dir, apiServer.Name),
		ControllerManager: filepath.Join(dir, controllerManager.Name),
		Scheduler:         filepath.Join(dir, scheduler.Name),
		Kwok:              filepath.Join(dir, kwok.Name),
	}
}

// NodeBinaries are the paths of what a real node runs, and of kubectl.
type NodeBinaries struct {
	Kubelet   string
	KubeProxy string
	Kubectl   string
}

// source is what the control plane is built from: the pinned module and the versions it names.
type source struct {
	dir        string
	key        string
	kubernetes string
}

// readSource reads the pinned module hack/controlplane below root.
func readSource(root string) (source, error) {
	dir := filepath.Join(root, "hack", "controlplane")
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return source{}, fmt.Errorf("reading the control plane's module: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return source{}, fmt.Errorf("reading the control plane's checksums: %w", err)
	}
	kubernetes, err := required(mod, "k8s.io/kubernetes")
	if err != nil {
		return source{}, err
	}
	etcd, err := required(mod, "go.etcd.io/etcd/server/v3")
	if err != nil {
		return source{}, err
	}
	kwok, err := required(mod, "sigs.k8s.io/kwok")
	if err != nil {
		return source{}, err
	}
	digest := sha256.Sum256(slices.Concat([]byte(recipe), mod, sum))
	key := strings.Join([]string{
		"kubernetes-" + kubernetes, "etcd-" + etcd, "kwok-" + kwok, hex.EncodeToString(digest[:4]),
	}, "_")
	return source{dir: dir, key: key, kubernetes: kubernetes}, nil
}

// required finds the version of module in the text of a go.mod.
func required(mod []byte, module string) (string, error) {
	line := regexp.MustCompile(`(?m)^\s*(?:require\s+)?` + regexp.QuoteMeta(module) + `\s+(v\S+)`)
	found := line.FindSubmatch(mod)
	if found == nil {
		return "", fmt.Errorf("finding the version of %s: hack/controlplane/go.mod does not require it", module)
	}
	return string(found[1]), nil
}

// findRoot walks up from dir to the folder that holds go.work.
func findRoot(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		_, err := os.Stat(filepath.Join(at, "go.work"))
		if err == nil {
			return at, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("looking for the repository: %w", err)
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("looking for the repository: no go.work in %s or above", dir)
		}
	}
}
