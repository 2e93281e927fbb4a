package chart

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/restmapper"

	"github.com/nvidia/nvsentinel/internal/localcluster"
)

// TestAPIServerTakesEveryObject of every file of values. Its cluster is its own: what
// stays there belongs to no release, and Helm would refuse to install over it.
func TestAPIServerTakesEveryObject(t *testing.T) {
	cluster, err := localcluster.Start(t.Context(), localcluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() })
	prepare(t, cluster)
	for _, name := range values {
		t.Run(name, func(t *testing.T) {
			text, err := template(t, file(name), "--namespace="+cluster.Namespace(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range documents(t, text) {
				if notServed.MatchString(document) {
					continue
				}
				if err := cluster.Apply(t.Context(), strings.NewReader(document)); err != nil {
					t.Errorf("%v\n%s", err, document)
				}
			}
		})
	}
}

// TestEveryOverlayStrictly: asked in a dry run, with strict validation of fields, an API
// server refuses no object of any overlay. It logs a table.
func TestEveryOverlayStrictly(t *testing.T) {
	cluster := localcluster.ForTest(t, localcluster.Options{})
	prepare(t, cluster)
	ask := newStrict(t, cluster)
	rows := []string{"", "| overlay | objects | kinds | not served here | refused |", "|---|---|---|---|---|"}
	for _, o := range overlays(t) {
		t.Run(o.name, func(t *testing.T) {
			text, err := template(t, append(slices.Clone(o.with), "--namespace="+ask.namespace)...)
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, fmt.Sprintf("| %s | %s |", o.name, ask.all(t, text)))
		})
	}
	t.Log(strings.Join(rows, "\n"))
}

// notServed are the kinds of the Prometheus operator and of cert-manager, of which the
// API server has no definition.
var notServed = regexp.MustCompile(`(?m)^apiVersion: (monitoring\.coreos\.com|cert-manager\.io)/`)

// documents are those of a rendering as they stand there, each with an object.
func documents(t *testing.T, rendering string) []string {
	t.Helper()
	all := regexp.MustCompile(`(?m)^---$`).Split(rendering, -1)
	return slices.DeleteFunc(all, func(document string) bool { return len(decode(t, document)) == 0 })
}

// prepare gives a cluster the chart's definitions and the namespaces that are not its own.
func prepare(t *testing.T, cluster *localcluster.Cluster) {
	t.Helper()
	definitions, err := filepath.Glob(filepath.Join(chartDir, "crds/*.yaml"))
	if err != nil || len(definitions) == 0 {
		t.Fatalf("definitions %v, %v", definitions, err)
	}
	for _, definition := range definitions {
		text, err := os.ReadFile(definition)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Apply(t.Context(), bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	// Of the GPU operator, by default and as values name it, and of the leases of nodes.
	for _, name := range []string{"gpu-operator", "gpus", "medik8s-leases"} {
		if err := cluster.Apply(t.Context(), strings.NewReader("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}\n")); err != nil {
			t.Fatal(err)
		}
	}
}

// strict asks an API server whether it would take a document as it stands.
type strict struct {
	cluster   *localcluster.Cluster
	mapper    meta.RESTMapper
	namespace string
	// answers are the answers by document: most overlays share most documents.
	answers map[string]error
}

func newStrict(t *testing.T, cluster *localcluster.Cluster) *strict {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(cluster.Client().Discovery())
	if err != nil {
		t.Fatal(err)
	}
	return &strict{cluster: cluster, mapper: restmapper.NewDiscoveryRESTMapper(groups), namespace: cluster.Namespace(t), answers: map[string]error{}}
}

// all asks about each document of a rendering, and returns what the table has of it.
func (s *strict) all(t *testing.T, rendering string) string {
	t.Helper()
	objects, refused, kinds, unknown := 0, 0, map[string]bool{}, map[string]bool{}
	for _, document := range documents(t, rendering) {
		kind := decode(t, document)[0].GetKind()
		objects++
		kinds[kind] = true
		if notServed.MatchString(document) {
			unknown[kind] = true
			continue
		}
		if _, known := s.answers[document]; !known {
			s.answers[document] = s.dryRunCreate(t, document)
		}
		if err := s.answers[document]; err != nil {
			refused++
			t.Errorf("%v\n%s", err, document)
		}
	}
	names := strings.Join(slices.Sorted(maps.Keys(unknown)), ", ")
	return fmt.Sprintf("%d | %d | %s | %d", objects, len(kinds), names, refused)
}

// dryRunCreate has the API server look at one document in a dry run: what it does not know of it,
// and what stands in it twice, is an error.
func (s *strict) dryRunCreate(t *testing.T, document string) error {
	t.Helper()
	o := decode(t, document)[0]
	kind := o.GroupVersionKind()
	mapping, err := s.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	at := []string{"/apis", kind.Group, kind.Version}
	if kind.Group == "" {
		at = []string{"/api", kind.Version}
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if o.GetNamespace() == "" {
			return errors.New("it names no namespace")
		}
		at = append(at, "namespaces", o.GetNamespace())
	}
	at = append(at, mapping.Resource.Resource, o.GetName())
	return s.cluster.Client().CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath(path.Join(at...)).
		Param("fieldManager", "strict").Param("force", "true").Param("fieldValidation", "Strict").Param("dryRun", "All").
		Body([]byte(document)).Do(t.Context()).Error()
}

// TestStrictness: what would be taken silently otherwise is refused.
func TestStrictness(t *testing.T) {
	ask := newStrict(t, localcluster.ForTest(t, localcluster.Options{}))
	for name, tc := range map[string]struct{ line, want string }{
		"nothing wrong":     {"automountServiceAccountToken: false", ""},
		"an unknown field":  {"automountServiceAcountToken: false", "automountServiceAcountToken"},
		"a duplicate field": {"automountServiceAccountToken: false\nautomountServiceAccountToken: true", "already"},
		"another type":      {"automountServiceAccountToken: maybe", "automountServiceAccountToken"},
	} {
		t.Run(name, func(t *testing.T) {
			err := ask.dryRunCreate(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: x, namespace: "+ask.namespace+"}\n"+tc.line+"\n")
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it says %v, want %q", err, tc.want)
			}
		})
	}
}
