package nodehealthcheck_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/nvidia/nvsentinel/api/nodehealthcheck/v1alpha1"
	"github.com/nvidia/nvsentinel/internal/localcluster"
	"github.com/nvidia/nvsentinel/internal/testkit"
)

// warnings of an API server.
type warnings struct{ all []string }

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.all = append(w.all, text)
}

// TestWarnedOfStepsOfOneKind: they are accepted, because their templates may state that the
// remediator supports several. The API server warns about them, and not about others.
func TestWarnedOfStepsOfOneKind(t *testing.T) {
	checks(t)
	cluster := localcluster.ForTest(t, localcluster.Options{})
	text, err := os.Open(manifests + "/../node-health-check.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	if err := cluster.Apply(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	output, config := &warnings{}, cluster.RESTConfig()
	config.WarningHandlerWithContext = output
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	warned := func(patch string) bool {
		output.all = nil
		o := object(t, "warned", patch)
		if _, err := client.Resource(v1alpha1.GroupVersion.WithResource("nodehealthchecks")).Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(strings.Join(output.all, " "), "multiple-templates-support")
	}
	same := fmt.Sprintf(steps, `"order":2,"timeout":"60s"`)
	testkit.Until(t, 2*time.Minute, func() bool { return warned(same) }) // a policy holds a moment after it was applied
	for _, patch := range []string{
		`{}`, strings.Replace(same, "FixTemplate", "MendTemplate", 1), strings.Replace(same, "example.com/v1", "example.com/v2", 1),
		`{"remediationTemplate":null,"escalatingRemediations":[{` + template + `,"order":1,"timeout":"60s"}]}`,
	} {
		if warned(patch) {
			t.Errorf("%s: %v", patch, output.all)
		}
	}
}
