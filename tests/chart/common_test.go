package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestEveryObjectIsMarked with the labels that Kubernetes recommends and what the
// values add; those by which pods are chosen are the chart's in any case.
func TestEveryObjectIsMarked(t *testing.T) {
	objects := rendered(t, file("all"), "--set=commonAnnotations.contact=a$1b")
	for _, o := range objects {
		if o.GetKind() == "Pod" {
			continue // that of helm test is no part of the suite
		}
		labels := o.GetLabels()
		for key, want := range map[string]string{
			"app.kubernetes.io/part-of": "nvsentinel", "app.kubernetes.io/instance": "nvsentinel", "app.kubernetes.io/managed-by": "Helm",
			"app.kubernetes.io/version": "0.1.0", "helm.sh/chart": "nvsentinel-0.1.0", "team": "gpu",
		} {
			if labels[key] != want {
				t.Errorf("%s %s has the label %s=%q, want %q", o.GetKind(), o.GetName(), key, labels[key], want)
			}
		}
		if got := o.GetAnnotations()["contact"]; got != "a$1b" {
			t.Errorf("%s %s has the annotation contact=%q", o.GetKind(), o.GetName(), got)
		}
	}
	for name, pod := range workloads(t, objects) {
		want := map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "nvsentinel", "team": "gpu", "tier": "control"}
		if diff := cmp.Diff(want, pod.Labels); diff != "" || pod.Annotations["contact"] == "" {
			t.Errorf("%s: labels of its pods (-want +got), and annotations %v:\n%s", name, pod.Annotations, diff)
		}
	}
	for _, name := range []string{"map", "text"} {
		if find(objects, "ConfigMap", name) == nil {
			t.Errorf("the further object %s is not there", name)
		}
	}
	if _, err := template(t, file("store"), `--set=commonLabels.app\.kubernetes\.io/name=x`); err == nil || !strings.Contains(err.Error(), "/commonLabels") {
		t.Errorf("a label by which pods are chosen: %v, want it refused", err)
	}
}

func find(objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == name })
	if i < 0 {
		return nil
	}
	return objects[i]
}

// TestPodValues: values below `pods` apply to every workload, those of a workload to it alone,
// and neither to any other pod.
func TestPodValues(t *testing.T) {
	container := func(p corev1.PodTemplateSpec) corev1.Container { return p.Spec.Containers[0] }
	for name, tc := range map[string]struct {
		set  string // below pods, and below nodeDrainer
		got  func(corev1.PodTemplateSpec) any
		want any
	}{
		"priority":           {"priorityClassName=high", func(p corev1.PodTemplateSpec) any { return p.Spec.PriorityClassName }, "high"},
		"labels":             {"podLabels.a=b", func(p corev1.PodTemplateSpec) any { return p.Labels["a"] }, "b"},
		"annotations":        {"podAnnotations.a=b", func(p corev1.PodTemplateSpec) any { return p.Annotations["a"] }, "b"},
		"variables":          {"extraEnv[0].name=HTTPS_PROXY,%extraEnv[0].value=p", func(p corev1.PodTemplateSpec) any { e := container(p).Env; return e[len(e)-1] }, corev1.EnvVar{Name: "HTTPS_PROXY", Value: "p"}},
		"variables' sources": {"extraEnvFrom[0].secretRef.name=s", func(p corev1.PodTemplateSpec) any { return len(container(p).EnvFrom) }, 1},
		"volumes": {"extraVolumes[0].name=v,%extraVolumes[0].emptyDir.medium=Memory", func(p corev1.PodTemplateSpec) any {
			return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "v" && v.EmptyDir.Medium == "Memory" })
		}, true},
		"mounts": {"extraVolumeMounts[0].name=v,%extraVolumeMounts[0].mountPath=/v", func(p corev1.PodTemplateSpec) any {
			return slices.ContainsFunc(container(p).VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "v" && m.MountPath == "/v" })
		}, true},
		"the pod's security": {"podSecurityContext.fsGroup=7", func(p corev1.PodTemplateSpec) any {
			return *p.Spec.SecurityContext.FSGroup == 7 && p.Spec.SecurityContext.SeccompProfile != nil && p.Spec.SecurityContext.RunAsUser != nil
		}, true},
		"the container's": {"securityContext.readOnlyRootFilesystem=false", func(p corev1.PodTemplateSpec) any {
			s := container(p).SecurityContext
			return !*s.ReadOnlyRootFilesystem && (s.Capabilities != nil || *s.Privileged)
		}, true},
		"liveness": {"livenessProbe.failureThreshold=9", func(p corev1.PodTemplateSpec) any {
			l := container(p).LivenessProbe
			return []int32{l.FailureThreshold, l.PeriodSeconds}
		}, []int32{9, 20}},
		"readiness": {"readinessProbe.periodSeconds=3", func(p corev1.PodTemplateSpec) any { return container(p).ReadinessProbe.PeriodSeconds }, int32(3)},
		"grace": {"terminationGracePeriodSeconds=0", func(p corev1.PodTemplateSpec) any {
			return p.Spec.TerminationGracePeriodSeconds != nil && *p.Spec.TerminationGracePeriodSeconds == 0
		}, true},
	} {
		for _, at := range []string{"pods", "nodeDrainer"} {
			t.Run(name+" of "+at, func(t *testing.T) {
				set := "--set=" + at + "." + strings.ReplaceAll(tc.set, "%", at+".")
				for workload, pod := range workloads(t, rendered(t, file("store"), set)) {
					has := func() (same bool) {
						defer func() { _ = recover() }() // a pointer that is nil: it has not
						return cmp.Equal(tc.want, tc.got(pod))
					}()
					if want := at == "pods" || workload == "node-drainer"; has != want {
						t.Errorf("%s: %v, want %v", workload, has, want)
					}
				}
			})
		}
	}
}

// TestOwnLogLevel: a workload's own counts.
func TestOwnLogLevel(t *testing.T) {
	for workload, pod := range workloads(t, rendered(t, file("store"), "--set=labeler.enabled=true,labeler.logLevel=debug")) {
		want := map[bool]string{true: "debug", false: "info"}[workload == "labeler"]
		if got := pod.Spec.Containers[0].Env[0]; got != (corev1.EnvVar{Name: "LOG_LEVEL", Value: want}) {
			t.Errorf("%s has %v", workload, got)
		}
	}
}

// deployments are those of a rendering, by name.
func deployments(t *testing.T, objects []*unstructured.Unstructured) map[string]appsv1.Deployment {
	t.Helper()
	out := map[string]appsv1.Deployment{}
	for _, o := range objects {
		if o.GetKind() == "Deployment" {
			out[o.GetName()] = as[appsv1.Deployment](t, o)
		}
	}
	return out
}

var cordoned = corev1.Toleration{Key: "node.kubernetes.io/unschedulable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}

// TestOneNodeAndMany: by default every Deployment fits on one node, a cordoned one too
// and while it is updated, and spreads where there are more.
func TestOneNodeAndMany(t *testing.T) {
	objects := rendered(t, file("kwok"))
	for name, d := range deployments(t, objects) {
		spec := d.Spec.Template.Spec
		alone := name == "csp-plugin-kwok"
		surge := intstr.FromInt32(map[bool]int32{true: 0, false: 1}[alone])
		if *d.Spec.Strategy.RollingUpdate.MaxSurge != surge || d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 1-surge.IntValue() {
			t.Errorf("%s is updated by %v", name, d.Spec.Strategy.RollingUpdate)
		}
		if !slices.Contains(spec.Tolerations, cordoned) {
			t.Errorf("%s tolerates %v", name, spec.Tolerations)
		}
		budget := find(objects, "PodDisruptionBudget", name)
		if (budget != nil) == alone {
			t.Errorf("%s has the budget %v", name, budget)
		}
		if alone {
			continue
		}
		b := as[policyv1.PodDisruptionBudget](t, budget).Spec
		if b.MaxUnavailable.IntValue() != 1 || !cmp.Equal(b.Selector, d.Spec.Selector) || *b.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
			t.Errorf("%s has the budget %v", name, b)
		}
		if a := spec.Affinity; len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 || len(a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 1 ||
			a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil || !avoidsQuarantine(a.NodeAffinity) {
			t.Errorf("%s has the affinity %v", name, a)
		}
		if s := spec.TopologySpreadConstraints; len(s) != 1 || s[0].WhenUnsatisfiable != corev1.ScheduleAnyway || !cmp.Equal(s[0].LabelSelector, d.Spec.Selector) {
			t.Errorf("%s is spread by %v", name, s)
		}
	}
}

func avoidsQuarantine(a *corev1.NodeAffinity) bool {
	return slices.ContainsFunc(a.PreferredDuringSchedulingIgnoredDuringExecution, func(p corev1.PreferredSchedulingTerm) bool {
		e := p.Preference.MatchExpressions
		return len(e) == 1 && e[0].Key == "dgxc.nvidia.com/nvsentinel-state" && e[0].Operator == corev1.NodeSelectorOpDoesNotExist
	})
}

// TestPlacesOfOnesOwn: each of the defaults for one node and many can be another, of
// all Deployments and of one.
func TestPlacesOfOnesOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		set     string
		changed func(appsv1.Deployment, *unstructured.Unstructured) bool
		one     bool // node-drainer alone
	}{
		"required": {"antiAffinity=required", func(d appsv1.Deployment, _ *unstructured.Unstructured) bool {
			return d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue() == 0
		}, false},
		"a strategy": {"controllers.strategy.type=Recreate", func(d appsv1.Deployment, _ *unstructured.Unstructured) bool {
			return d.Spec.Strategy.Type == "Recreate"
		}, false},
		"a strategy of one": {"nodeDrainer.strategy.type=Recreate", func(d appsv1.Deployment, _ *unstructured.Unstructured) bool {
			return d.Spec.Strategy.Type == "Recreate"
		}, true},
		"no cordoned node": {"controllers.tolerateCordon=false", func(d appsv1.Deployment, _ *unstructured.Unstructured) bool {
			return !slices.Contains(d.Spec.Template.Spec.Tolerations, cordoned)
		}, false},
		"no budget":         {"controllers.podDisruptionBudget.enabled=false", func(_ appsv1.Deployment, b *unstructured.Unstructured) bool { return b == nil }, false},
		"no budget of one":  {"nodeDrainer.podDisruptionBudget.enabled=false", func(_ appsv1.Deployment, b *unstructured.Unstructured) bool { return b == nil }, true},
		"no budget for one": {"nodeDrainer.replicas=1", func(_ appsv1.Deployment, b *unstructured.Unstructured) bool { return b == nil }, true},
		"a budget of one": {"nodeDrainer.podDisruptionBudget.maxUnavailable=50%", func(_ appsv1.Deployment, b *unstructured.Unstructured) bool {
			max, _, _ := unstructured.NestedString(b.Object, "spec", "maxUnavailable")
			return max == "50%"
		}, true},
		"spread": {"nodeDrainer.topologySpreadConstraints[0].maxSkew=3", func(d appsv1.Deployment, _ *unstructured.Unstructured) bool {
			s := d.Spec.Template.Spec.TopologySpreadConstraints
			return len(s) == 1 && s[0].MaxSkew == 3 && s[0].LabelSelector != nil
		}, true},
		"history": {"nodeDrainer.revisionHistoryLimit=2", func(d appsv1.Deployment, _ *unstructured.Unstructured) bool {
			return d.Spec.RevisionHistoryLimit != nil && *d.Spec.RevisionHistoryLimit == 2
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := rendered(t, file("store"), "--set="+tc.set)
			for name, d := range deployments(t, objects) {
				if got := tc.changed(d, find(objects, "PodDisruptionBudget", name)); got != (!tc.one || name == "node-drainer") {
					t.Errorf("%s: changed %v", name, got)
				}
			}
		})
	}
}
