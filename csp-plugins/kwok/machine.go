package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nvidia/nvsentinel/internal/durable"
)

// The annotations by which simulated nodes are known and lose their power. The
// stages of the simulation read the second one.
const (
	simulatedAnnotation = "kwok.x-k8s.io/node"
	simulatedValue      = "fake"
	powerAnnotation     = "nvsentinel.nvidia.com/simulated-power"
	powerOff            = "off"
)

// hookLimit bounds one run of the hook.
const hookLimit = time.Minute

// errNodeDeleted means that the Node certainly does not exist.
var errNodeDeleted = errors.New("node not found")

// Machines are the simulated machines: their Nodes and, where they have one,
// their folders.
type Machines struct {
	Client kubernetes.Interface
	// BootIDDir holds a folder per machine; <node>/boot_id stands for its
	// /proc/sys/kernel/random/boot_id. Empty means that they have none.
	BootIDDir string
	// Hook is a program that is run as HOOK NODE BOOTID when a machine comes up.
	Hook string
}

// node reads a Node.
func (m Machines) node(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := m.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	return node, wrap(err, "reading", name)
}

// power takes a machine's power or gives it back.
func (m Machines) power(ctx context.Context, name string, on bool) error {
	var value any
	if !on {
		value = powerOff
	}
	return m.patch(ctx, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{powerAnnotation: value}}})
}

// boot lets a machine come up under a boot id: its file first, then what runs
// on it, then its Node.
func (m Machines) boot(ctx context.Context, name, bootID string) (hook, err error) {
	if m.BootIDDir != "" {
		if err := writeBootID(filepath.Join(m.BootIDDir, name), bootID); err != nil {
			return nil, err
		}
	}
	hook = m.runHook(ctx, name, bootID)
	return hook, m.patch(ctx, name, map[string]any{"status": map[string]any{"nodeInfo": map[string]any{"bootID": bootID}}}, "status")
}

func (m Machines) patch(ctx context.Context, name string, patch map[string]any, subresources ...string) error {
	b, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding a patch of node %s: %w", name, err)
	}
	_, err = m.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, b, metav1.PatchOptions{}, subresources...)
	return wrap(err, "patching", name)
}

// runHook restarts what runs on a machine.
func (m Machines) runHook(ctx context.Context, name, bootID string) error {
	if m.Hook == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, hookLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, m.Hook, name, bootID).CombinedOutput()
	if err != nil {
		return fmt.Errorf("running the hook for node %s: %w: %s", name, err, out)
	}
	return nil
}

func wrap(err error, doing, node string) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %s", errNodeDeleted, node)
	case err != nil:
		return fmt.Errorf("%s node %s: %w", doing, node, err)
	}
	return nil
}

// writeBootID replaces the file in one step, as a reader expects of /proc.
func writeBootID(dir, bootID string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory of a machine: %w", err)
	}
	if err := durable.Replace(filepath.Join(dir, "boot_id"), []byte(bootID+"\n"), 0o644); err != nil {
		return fmt.Errorf("writing a boot ID: %w", err)
	}
	return nil
}

// FaultAnnotation on a simulated Node asks for a Fault at its next signals.
const FaultAnnotation = "nvsentinel.nvidia.com/simulated-reboot"

// FaultKind is what a provider can do wrong.
type FaultKind string

// Kinds of faults.
const (
	// NoFault reboots the machine.
	NoFault FaultKind = ""
	// Fail answers with a code and does nothing: "fail=ResourceExhausted".
	Fail FaultKind = "fail"
	// Hang does nothing and does not answer.
	Hang FaultKind = "hang"
	// Mute reboots the machine and does not answer.
	Mute FaultKind = "mute"
	// Stall takes the machine down for good.
	Stall FaultKind = "stall"
	// Lie reports that all is well and does nothing.
	Lie FaultKind = "lie"
)

// Fault is one fault that was asked for.
type Fault struct {
	Kind FaultKind
	Code codes.Code
}

// ParseFault reads a fault: fail=CODE, hang, mute, stall, lie, or nothing.
func ParseFault(text string) (Fault, error) {
	kind, code, given := strings.Cut(text, "=")
	f := Fault{Kind: FaultKind(kind)}
	switch f.Kind {
	case NoFault, Hang, Mute, Stall, Lie:
		if given {
			return Fault{}, fmt.Errorf("fault %q: only fail takes a code", text)
		}
		return f, nil
	case Fail:
		for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
			if c.String() == code {
				f.Code = c
				return f, nil
			}
		}
		return Fault{}, fmt.Errorf("fault %q: %q is not a gRPC code such as ResourceExhausted", text, code)
	}
	return Fault{}, fmt.Errorf("fault %q is not fail=CODE, hang, mute, stall or lie", text)
}

// faultOf is the fault asked for by a Node's annotation, else by the control
// file for that node, else by the file for "*".
func faultOf(node *corev1.Node, file string) (Fault, error) {
	if text, ok := node.Annotations[FaultAnnotation]; ok {
		return ParseFault(text)
	}
	if file == "" {
		return Fault{}, nil
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Fault{}, nil
	}
	if err != nil {
		return Fault{}, fmt.Errorf("reading the fault file: %w", err)
	}
	faults := map[string]string{}
	if err := json.Unmarshal(b, &faults); err != nil {
		return Fault{}, fmt.Errorf("reading the fault file: %w", err)
	}
	text, ok := faults[node.Name]
	if !ok {
		text = faults["*"]
	}
	return ParseFault(text)
}
