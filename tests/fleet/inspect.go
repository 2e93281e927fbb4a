package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/internal/gobuild"
	"github.com/nvidia/nvsentinel/internal/testkit"
	"github.com/nvidia/nvsentinel/store-client/store"
	"github.com/nvidia/nvsentinel/tests/programs"
)

// UserNamespace is where the workloads run.
const UserNamespace = "training"

// Records are a node's records in append order.
func (f *Fleet) Records(ctx context.Context, node string) ([]record.Record, error) {
	return f.Store.List(ctx, store.Query{Selector: record.Selector{Node: node}})
}

// UserPods counts the pods of workloads on a node that are not on their way out.
func (f *Fleet) UserPods(ctx context.Context, node string) (int, error) {
	pods, err := f.Cluster.Client().CoreV1().Pods(UserNamespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range pods.Items {
		owned := len(p.OwnerReferences) > 0 && p.OwnerReferences[0].Kind == "DaemonSet"
		if !owned && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n, nil
}

// Why asks the command line what happened to a node.
func (f *Fleet) Why(ctx context.Context, node string, flags ...string) ([]byte, error) {
	args := append([]string{"why", node, "--store", f.own, "--kubeconfig", f.Cluster.AdminKubeconfig()}, flags...)
	out, err := exec.CommandContext(ctx, filepath.Join(f.options.Bin, "nvsentinel"), args...).CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("running nvsentinel why %s: %w: %.300s", node, err, out)
	}
	return out, nil
}

// Entry is a line of the plugin's journal.
type Entry struct {
	Verb   string `json:"verb"`
	Node   string `json:"node"`
	Key    string `json:"key"`
	Effect string `json:"effect"`
}

// JournalEntries returns the plugin's journal: every request and every action.
func (f *Fleet) JournalEntries() ([]Entry, error) {
	text, err := os.ReadFile(filepath.Join(f.Dir, "journal.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Entry
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return out, fmt.Errorf("reading the books: %w", err)
		}
		out = append(out, e)
	}
	return out, nil
}

// Root finds the repository: the folder with go.work above the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("run this inside the repository: no go.work above the working directory")
		}
		dir = parent
	}
}

// Build builds every service into dir with the given go build flags, unless they
// are built already, and returns the folder they are in.
func Build(ctx context.Context, root, dir string, progress io.Writer, flags ...string) (string, error) {
	if built := os.Getenv(testkit.Prebuilt); built != "" {
		if slices.Contains(flags, "crashpoints") {
			return filepath.Join(built, "crashpoints"), nil
		}
		return filepath.Join(built, "plain"), nil
	}
	batch := programs.Services(root, dir, flags...)
	return dir, gobuild.Builder{Progress: progress}.Build(ctx, batch)
}

// Reboots counts the reboots of a node in the plugin's journal.
func (f *Fleet) Reboots(node string) (int, error) {
	journal, err := f.JournalEntries()
	n := 0
	for _, e := range journal {
		if e.Node == node && e.Effect == "rebooted" {
			n++
		}
	}
	return n, err
}

// AddWorkloads starts what users run: a deployment over all GPU nodes and a
// DaemonSet, and waits until they run.
func (f *Fleet) AddWorkloads(ctx context.Context) error {
	pods := 2 * f.options.Nodes
	if _, err := f.Cluster.AddDeployment(ctx, UserNamespace, "train", pods, 1); err != nil {
		return err
	}
	if _, err := f.Cluster.AddDaemonSet(ctx, UserNamespace, "node-exporter"); err != nil {
		return err
	}
	_, err := f.Cluster.WaitForPods(ctx, UserNamespace, "train", pods)
	return err
}
