// Package outside_test builds a module of somebody else's that uses module api as it is
// published: from a module proxy, without a replacement, a workspace or the root module.
package outside_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// version is the one under which the test publishes the api.
const version = "v0.0.1-test"

// importer uses everything that the api promises to others.
const importer = `package outside

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvidia/nvsentinel/api/csp/auth"
	"github.com/nvidia/nvsentinel/api/csp/plugin"
	"github.com/nvidia/nvsentinel/api/csp/plugintest"
	csp "github.com/nvidia/nvsentinel/api/csp/v1"
	healthevent "github.com/nvidia/nvsentinel/api/healthevent/v1alpha1"
	janitor "github.com/nvidia/nvsentinel/api/janitor/v1alpha1"
	nodehealthcheck "github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/api/protos"
	repairchain "github.com/nvidia/nvsentinel/api/repairchain/v1alpha1"
)

func TestKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		janitor.AddToScheme, nodehealthcheck.AddToScheme, healthevent.AddToScheme, repairchain.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	gvk := janitor.GroupVersion.WithKind("RebootNode")
	if !scheme.Recognizes(gvk) {
		t.Errorf("the scheme has no %s", gvk)
	}
}

func TestContracts(t *testing.T) {
	var _ csp.CSPPluginServiceServer = csp.UnimplementedCSPPluginServiceServer{}
	var _ = plugin.Options{Grace: plugin.DefaultGrace}
	var _ = plugintest.Run
	var _ = auth.Policy{}
	e := &protos.HealthEvent{ProcessingStrategy: protos.ProcessingStrategy_PERSIST_ONLY}
	if e.GetProcessingStrategy() != protos.ProcessingStrategy_PERSIST_ONLY {
		t.Error("the strategy is lost")
	}
}
`

// TestAnOutsideModule: it compiles the types of the CRDs, both contracts and the
// conformance suite, runs a test with them, and builds the example of a plugin.
func TestAnOutsideModule(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, proxy := t.TempDir(), publish(t, filepath.Join(root, "api"))
	requirements, err := os.ReadFile(filepath.Join(root, "api", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	// Its own versions are the api's, so that nothing has to be downloaded.
	mod := strings.Replace(string(requirements), "module github.com/nvidia/nvsentinel/api\n", "module example.com/outside\n", 1) +
		"\nrequire github.com/nvidia/nvsentinel/api " + version + "\n"
	sum, err := os.ReadFile(filepath.Join(root, "api", "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join(root, "examples", "go-plugin", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"go.mod": mod, "go.sum": string(sum), "outside_test.go": importer, "plugin/main.go": string(example)} {
		write(t, filepath.Join(dir, name), text)
	}
	for _, args := range [][]string{{"test", "-mod=mod", "."}, {"build", "-mod=mod", "-o", "rack-plugin", "./plugin"}} {
		out, err := outside(t, dir, proxy, args...)
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	modules, err := outside(t, dir, proxy, "list", "-mod=mod", "-deps", "-test", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, modules)
	}
	for m := range strings.FieldsSeq(modules) {
		if m != "github.com/nvidia/nvsentinel/api" && strings.HasPrefix(m, "github.com/nvidia/nvsentinel") {
			t.Errorf("it needs module %s of this repository, want the api alone", m)
		}
	}
}

// publish writes a folder that serves the module as a proxy does.
func publish(t *testing.T, source string) string {
	t.Helper()
	proxy := t.TempDir()
	m := module.Version{Path: "github.com/nvidia/nvsentinel/api", Version: version}
	base := filepath.Join(proxy, filepath.FromSlash(m.Path), "@v", version)
	mod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, base+".mod", string(mod))
	write(t, base+".info", `{"Version":"`+version+`"}`)
	archive, err := os.Create(base + ".zip")
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if err := zip.CreateFromDir(archive, m, source); err != nil {
		t.Fatal(err)
	}
	return proxy
}

// outside runs the go command as on the machine of somebody else, with a module cache of
// its own that is filled from the proxy and from this machine's cache.
func outside(t *testing.T, dir, proxy string, args ...string) (string, error) {
	t.Helper()
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	downloaded := filepath.Join(strings.TrimSpace(string(cache)), "cache", "download")
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GOSUMDB=off", "GOMODCACHE="+filepath.Join(dir, "modules"),
		"GOPROXY=file://"+proxy+",file://"+downloaded)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
