package kubernetesobjectmonitor

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/machine"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
	"github.com/nvidia/nvsentinel/internal/kube"
)

// nothing is a lookup() that is never asked: rights follow from the text alone.
type nothing struct{}

// Find finds nothing.
func (nothing) Find(schema.GroupVersionKind, string, string) (map[string]any, error) { return nil, nil }

// request is the command line.
type request struct{ policies, kubeconfig, namespace, account string }

// runRights is the subcommand rbac: it prints the roles and their bindings, and
// returns the exit code.
func runRights(args []string, out, problems io.Writer) int {
	flags := flag.NewFlagSet(machine.Agent+" rbac", flag.ContinueOnError)
	flags.SetOutput(problems)
	var r request
	flags.StringVar(&r.policies, "policy-config-path", defaultConfig.Policies, "File with the policies.")
	flags.StringVar(&r.kubeconfig, "kubeconfig", "", "Path of a kubeconfig, used to look up the resource names of the kinds. Empty uses the regular plurals.")
	flags.StringVar(&r.namespace, "namespace", defaultConfig.Lease.Namespace, "Namespace of the service account.")
	flags.StringVar(&r.account, "service-account", machine.Agent, "Service account that receives the permissions.")
	flags.Usage = func() {
		fmt.Fprintln(problems, machine.Agent+" rbac [flags]\nPrints the RBAC manifests that the policies require. Apply them with kubectl.")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return exitFine
	} else if err != nil {
		return exitUsage
	}
	err := r.print(out)
	if flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(problems, machine.Agent+" rbac:", err)
		return exitUsage
	}
	return exitFine
}

func (r request) print(out io.Writer) error {
	text, err := os.ReadFile(r.policies)
	if err != nil {
		return fmt.Errorf("reading the policies: %w", err)
	}
	set, err := policy.Parse(r.policies, string(text), nothing{})
	if err != nil {
		return err
	}
	names := plurals{names: map[schema.GroupVersionKind]string{}}
	if r.kubeconfig != "" {
		if err := names.discover(r.kubeconfig, set.Kinds()); err != nil {
			return err
		}
	}
	rights := set.Rights(names.of)
	var b bytes.Buffer
	for _, kind := range names.guessed {
		fmt.Fprintf(&b, "# %s: %s is the regular plural, use --kubeconfig to read it from the cluster\n", kind, names.of(kind))
	}
	for _, o := range r.objects(rights) {
		body, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Errorf("encoding a role: %w", err)
		}
		b.WriteString("---\n" + string(body))
	}
	_, err = out.Write(b.Bytes())
	return err
}

// objects are the role and the binding of every place.
func (r request) objects(rights []policy.Rights) []any {
	var out []any
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: name}
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: r.account, Namespace: r.namespace}}
	for _, place := range rights {
		m := metav1.ObjectMeta{Name: "nvsentinel-" + r.account, Namespace: place.Namespace}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Name: m.Name}
		if place.Namespace == "" {
			ref.Kind = "ClusterRole"
			out = append(out, rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: m, Rules: place.Rules},
				rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: m, RoleRef: ref, Subjects: subjects})
			continue
		}
		ref.Kind = "Role"
		out = append(out, rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: m, Rules: place.Rules},
			rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: m, RoleRef: ref, Subjects: subjects})
	}
	return out
}

// plurals are the resource names of kinds.
type plurals struct {
	names   map[schema.GroupVersionKind]string
	guessed []schema.GroupVersionKind
}

// discover takes the names from a cluster; kinds that it does not serve are guessed.
func (p *plurals) discover(kubeconfig string, kinds []schema.GroupVersionKind) error {
	cluster, err := kube.Connect(kube.Config{Kubeconfig: kubeconfig}, machine.Agent)
	if err != nil {
		return err
	}
	http, err := rest.HTTPClientFor(cluster.Config)
	if err != nil {
		return fmt.Errorf("creating the API client: %w", err)
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cluster.Config, http)
	if err != nil {
		return fmt.Errorf("creating the REST mapper: %w", err)
	}
	for _, kind := range kinds {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		switch {
		case err == nil:
			p.names[kind] = mapping.Resource.Resource
		case !meta.IsNoMatchError(err):
			return fmt.Errorf("reading the resource name of %s from the API server: %w", kind, err)
		}
	}
	return nil
}

// of is the name of a kind, the regular plural if it is not known.
func (p *plurals) of(kind schema.GroupVersionKind) string {
	if name := p.names[kind]; name != "" {
		return name
	}
	guess, _ := meta.UnsafeGuessKindToResource(kind)
	p.names[kind] = strings.ToLower(guess.Resource)
	p.guessed = append(p.guessed, kind)
	return p.names[kind]
}
