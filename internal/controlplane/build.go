package controlplane

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/nvidia/nvsentinel/internal/gobuild"
)

// Builder builds the control plane's programs into a cache, once per machine and version.
type Builder struct {
	// Root is the repository; empty looks for go.work in the working folder and above.
	Root string
	// Cache is the folder of the built programs; empty is nvsentinel/controlplane in the user's
	// cache folder ($XDG_CACHE_HOME, else ~/.cache).
	Cache string
	// Progress receives how far a build is; nil discards it.
	Progress io.Writer
}

// Build builds every program a cluster with controllers needs. When all exist it is instant and silent.
func (b Builder) Build(ctx context.Context) (Binaries, error) { return b.build(ctx, allPrograms) }

// BuildAPI builds the programs that suffice for an API server.
func (b Builder) BuildAPI(ctx context.Context) (Binaries, error) { return b.build(ctx, apiPrograms) }

// BuildKubectl builds kubectl of the same version and returns its path.
func (b Builder) BuildKubectl(ctx context.Context) (string, error) {
	batch, err := b.batch([]gobuild.Program{kubectl})
	if err != nil {
		return "", err
	}
	return filepath.Join(batch.Out, kubectl.Name), gobuild.Builder{Progress: b.Progress}.Build(ctx, batch)
}

// NodeBatch is what BuildNode builds, for those who build more in one go.
func (b Builder) NodeBatch() (gobuild.Batch, error) {
	batch, err := b.batch([]gobuild.Program{kubelet, kubeProxy, kubectl})
	batch.Title = "kubelet, kube-proxy and kubectl"
	return batch, err
}

// BuildNode builds what a real node runs, and kubectl, of the same version.
func (b Builder) BuildNode(ctx context.Context) (NodeBinaries, error) {
	batch, err := b.NodeBatch()
	if err != nil {
		return NodeBinaries{}, err
	}
	if err := (gobuild.Builder{Progress: b.Progress}).Build(ctx, batch); err != nil {
		return NodeBinaries{}, err
	}
	return NodeBinaries{
		Kubelet:   filepath.Join(batch.Out, kubelet.Name),
		KubeProxy: filepath.Join(batch.Out, kubeProxy.Name),
		Kubectl:   filepath.Join(batch.Out, kubectl.Name),
	}, nil
}

// Batch is what Build builds, for those who build more in one go.
func (b Builder) Batch() (gobuild.Batch, error) { return b.batch(allPrograms) }

func (b Builder) build(ctx context.Context, programs []gobuild.Program) (Binaries, error) {
	batch, err := b.batch(programs)
	if err != nil {
		return Binaries{}, err
	}
	if err := (gobuild.Builder{Progress: b.Progress}).Build(ctx, batch); err != nil {
		return Binaries{}, err
	}
	return binariesIn(batch.Out), nil
}

// batch finds the pinned module and the cache folder that belongs to its versions.
//
// The compiler's flags and the environment are those of the services in tests/programs, so that what
// both need is compiled once.
func (b Builder) batch(programs []gobuild.Program) (gobuild.Batch, error) {
	root := b.Root
	if root == "" {
		here, err := os.Getwd()
		if err != nil {
			return gobuild.Batch{}, fmt.Errorf("looking for the repository: %w", err)
		}
		if root, err = findRoot(here); err != nil {
			return gobuild.Batch{}, err
		}
	}
	from, err := readSource(root)
	if err != nil {
		return gobuild.Batch{}, err
	}
	cache := b.Cache
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return gobuild.Batch{}, fmt.Errorf("finding the user's cache folder: %w", err)
		}
		cache = filepath.Join(user, "nvsentinel", "controlplane")
	}
	return gobuild.Batch{
		Title: "control plane", Dir: from.dir, Env: []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH="},
		Flags:    []string{"-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", linkerFlags(from)},
		Programs: programs, Out: filepath.Join(cache, from.key), Once: true,
	}, nil
}

// linkerFlags name the version, which Kubernetes otherwise takes from its own build scripts.
// Commit and date stay unset: we do not know them.
func linkerFlags(from source) string {
	flags := []string{"-s", "-w"}
	numbers := strings.SplitN(strings.TrimPrefix(from.kubernetes, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, "-X", pkg+".gitVersion="+from.kubernetes)
		if len(numbers) == 3 {
			flags = append(flags, "-X", pkg+".gitMajor="+numbers[0], "-X", pkg+".gitMinor="+numbers[1])
		}
	}
	return strings.Join(flags, " ")
}
