// Package programs lists the programs of the project and how they are built. It
// imports little, so that the program that builds them can report its progress before anything
// else is compiled.
package programs

import (
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/nvidia/nvsentinel/internal/gobuild"
)

// ofDemo are the programs that the demo runs, with the command line.
var ofDemo = []string{
	"./platform-connectors", "./platform-connectors/node-connector", "./health-monitors/syslog-health-monitor", controller,
	"./csp-plugins/kwok", "./cli/nvsentinel",
}

// controller is the program of the control plane.
const controller = "./nvsentinel-controller"

// Controllers are the folders of what it runs. A link of that name, beside the program, is
// the program that runs this controller alone.
var Controllers = []string{
	"fault-quarantine", "node-drainer", "fault-remediation", "repair-chain", "janitor", "node-health-check",
	"health-events-analyzer", "event-exporter", "health-monitors/kubernetes-object-monitor", "health-monitors/labeler",
}

// others are the programs that the demo does not run.
var others = []string{
	"./health-monitors/gpu-health-monitor", "./health-monitors/nic-health-monitor", "./health-monitors/metadata-collector",
	"./csp-plugins/aws", "./csp-plugins/azure", "./csp-plugins/gcp", "./csp-plugins/oci",
	"./csp-plugins/redfish", "./csp-plugins/ipmi", "./csp-plugins/node", "./csp-plugins/node/node-reboot", "./janitor/gpu-reset",
	"./repair-steps/log-collector", "./repair-steps/ticket",
	"./csp-plugins/aws/csp-health-monitor-aws", "./csp-plugins/azure/csp-health-monitor-azure", "./csp-plugins/gcp/csp-health-monitor-gcp",
	"./csp-plugins/oci/csp-health-monitor-oci",
}

// Services is every service and the command line, built into out with go build's
// flags given.
func Services(root, out string, flags ...string) gobuild.Batch {
	b := batch("services", root, out, ofDemo, others)
	b.Flags = append(b.Flags, flags...)
	return b
}

// CrashPoints is every service with the points at which tests make it die.
func CrashPoints(root, out string) gobuild.Batch {
	b := Services(root, out, "-tags=crashpoints,"+lean)
	b.Title = "services with crash points"
	return b
}

// Demo is the demo and the services it runs.
func Demo(root, out string) gobuild.Batch {
	return batch("services and demo", root, out, ofDemo, []string{"./tests/cmd/demo"})
}

// Cgo is the folder of the demo's programs that are built with cgo, below the others.
const Cgo = "cgo"

// WithCgo is the services that call a C library. Its functions are bound when they
// are called: an older library may lack those that never are.
func WithCgo(root, out string) gobuild.Batch {
	b := batch("services with cgo", root, out, []string{"./health-monitors/gpu-health-monitor"})
	b.Env = []string{"CGO_ENABLED=1"}
	b.Flags = Flags("-ldflags=-s -w -extldflags=-Wl,-z,lazy")
	return b
}

// Earlier is the services of the demo and node-health-check of another commit, whose source
// root is. Where it is in a folder of its own that lasts, what was built once is not built
// again; packages of modules are compiled as for all others.
func Earlier(root, out string) gobuild.Batch {
	services := ofDemo
	if _, err := os.Stat(filepath.Join(root, controller)); err != nil { // each was a program of its own
		services = append(slices.DeleteFunc(slices.Clone(ofDemo), func(p string) bool { return p == controller }),
			"./fault-quarantine", "./node-drainer", "./fault-remediation", "./repair-chain", "./janitor", "./node-health-check")
	}
	b := batch("services of an earlier commit", root, out, services)
	b.Once = true
	return b
}

// Connectors is the program that runs the connectors of many nodes in one process, for
// benchmarks and tests of scale. It is never shipped.
func Connectors(root, out string) gobuild.Batch {
	return batch("connectors of many nodes", root, out, []string{"./platform-connectors/internal/fleet"})
}

// Monitor is the maintenance monitor that reads announcements from a file, with go build's
// flags given.
func Monitor(root, out string, flags ...string) gobuild.Batch {
	b := batch("maintenance monitor", root, out, []string{bulletin})
	b.Flags = append(b.Flags, flags...)
	return b
}

// E2E is the test of the chart on a real node, with the command line.
func E2E(root, out string) gobuild.Batch {
	return batch("command line and test", root, out, []string{"./cli/nvsentinel", "./tests/cmd/e2e"})
}

// Helm is the helm that renders the chart.
func Helm(root, out string) gobuild.Batch {
	b := batch("helm", filepath.Join(root, "hack", "tools"), out)
	b.Env = append(b.Env, "GOWORK=off")
	b.Programs = []gobuild.Program{{Name: "helm", Package: "helm.sh/helm/v4/cmd/helm"}}
	return b
}

// RaceDetector are the flags of go build and go test with which tests run. The
// detector does not look into SQLite, which is C translated to Go: it would find nothing of the
// project there, and cost three quarters of the time of SQLite's tests.
func RaceDetector() []string { return []string{"-race", "-gcflags=modernc.org/...=-race=false"} }

// Tests is what the tests are made of, with the race detector.
func Tests(root string) gobuild.Batch {
	return gobuild.Batch{Title: "tests", Dir: root, Env: []string{"CGO_ENABLED=1"}, Flags: RaceDetector(), Only: []string{"work"}}
}

// lean is gRPC's tag for programs without its pages of traces. Their templates call
// methods by name, for which the linker would keep every method of every type: half of a
// program that has Kubernetes' types, and of its resident memory. The Dockerfile has it
// too.
const lean = "grpcnotrace"

// Flags are the flags of go build for every program that tests run: those of package
// controlplane, so that what both need is compiled once. The symbols of debuggers are a
// tenth of the compiler's work. Without the paths of folders a package is compiled once,
// whatever clone or module cache it is in. Of two -tags, go build takes the last.
func Flags(more ...string) []string {
	return append([]string{"-trimpath", "-gcflags=all=-dwarf=false", "-ldflags=-s -w", "-tags=" + lean}, more...)
}

// bulletin is the maintenance monitor that reads announcements from a file, for tests.
const bulletin = "./health-monitors/csp-health-monitor/bulletin"

// nameOf is the name of a program's binary: that of its folder, unless the folder is named
// after a provider.
func nameOf(pkg string) string {
	switch {
	case path.Dir(pkg) == "csp-plugins":
		return "csp-plugin-" + path.Base(pkg)
	case pkg == bulletin:
		return "csp-health-monitor-bulletin"
	}
	return path.Base(pkg)
}

func batch(title, dir, out string, lists ...[]string) gobuild.Batch {
	b := gobuild.Batch{Title: title, Dir: dir, Env: []string{"CGO_ENABLED=0"}, Flags: Flags(), Out: out}
	for _, list := range lists {
		for _, pkg := range list {
			p := gobuild.Program{Name: nameOf(pkg), Package: pkg}
			if pkg == controller {
				for _, c := range Controllers {
					p.Links = append(p.Links, path.Base(c))
				}
			}
			b.Programs = append(b.Programs, p)
		}
	}
	return b
}
