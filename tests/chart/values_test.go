package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvidia/nvsentinel/data-models/record"
	"github.com/nvidia/nvsentinel/health-monitors/kubernetes-object-monitor/policy"
)

// TestLint: Helm finds nothing to report, and each file of values brings the workloads
// that it enables and no other.
func TestLint(t *testing.T) {
	defaults := []string{
		"fault-quarantine", "fault-remediation", "health-events-analyzer", "kubernetes-object-monitor", "node-drainer",
		"platform-connectors", "platform-connectors-cluster", "platform-connectors-gateway", "syslog-health-monitor",
	}
	want := map[string][]string{
		"store":      defaults,
		"all":        append(slices.Clone(defaults), "csp-health-monitor", "csp-plugin-aws", "event-exporter", "gpu-health-monitor", "janitor", "labeler", "metadata-collector", "nic-health-monitor", "node-health-check", "repair-chain"),
		"own-plugin": append(slices.Clone(defaults), "janitor"),
		"kwok":       append(slices.Clone(defaults), "csp-plugin-kwok", "janitor"),
		"nodes":      {"platform-connectors", "platform-connectors-gateway", "syslog-health-monitor"},
		"nulls":      append(slices.Clone(defaults), "csp-plugin-aws", "janitor"),
		"nothing":    {},
		"sidecar":    append(slices.Clone(defaults), "csp-health-monitor", "janitor"),
		"two":        append(slices.Clone(defaults), "csp-health-monitor", "csp-plugin-aws", "csp-plugin-kwok", "janitor"),
		"trial":      defaults,
		"clouds":     append(slices.Clone(defaults), "csp-health-monitor", "csp-plugin-azure", "csp-plugin-gcp", "csp-plugin-node", "csp-plugin-oci", "janitor"),
		"small":      {"csp-plugin-aws", "nvsentinel-controller", "platform-connectors", "platform-connectors-cluster", "platform-connectors-gateway", "syslog-health-monitor"},
	}
	for _, name := range values {
		t.Run(name, func(t *testing.T) {
			out, problems, err := helm(t, "lint", "--strict", chartDir, "--namespace", release, file(name))
			if err != nil || strings.Contains(out, "WARNING") {
				t.Errorf("helm lint: %v\n%s%s", err, out, problems)
			}
			objects := rendered(t, file(name))
			got := slices.Sorted(maps.Keys(workloads(t, objects)))
			slices.Sort(want[name])
			if diff := cmp.Diff(want[name], append([]string{}, got...)); diff != "" {
				t.Errorf("workloads (-want +got):\n%s", diff)
			}
			if name == "nothing" && len(objects) > 0 {
				t.Errorf("%d objects of no workload, the first %s %s", len(objects), objects[0].GetKind(), objects[0].GetName())
			}
		})
	}
}

// monitors are those whose processing strategy can be set, by the keys of their values.
var monitors = map[string]struct{ workload, strategy string }{
	"syslogHealthMonitor":     {"syslog-health-monitor", "PROCESS"},
	"kubernetesObjectMonitor": {"kubernetes-object-monitor", "PROCESS"},
	"healthEventsAnalyzer":    {"health-events-analyzer", "PROCESS"},
	"gpuHealthMonitor":        {"gpu-health-monitor", "PERSIST_ONLY"},
	"nicHealthMonitor":        {"nic-health-monitor", "PERSIST_ONLY"},
	"cspHealthMonitor":        {"csp-health-monitor", "PERSIST_ONLY"},
}

// everyMonitor enables all of them.
const everyMonitor = "--set=gpuHealthMonitor.enabled=true,nicHealthMonitor.enabled=true," + cspMonitor

// cspMonitor enables csp-health-monitor.
const cspMonitor = "cspHealthMonitor.enabled=true,cspHealthMonitor.provider=oci,cspHealthMonitor.clusterName=test,cspHealthMonitor.storeSecretName=maintenance-store"

// TestProcessingStrategy: the value of each monitor is its container's argument,
// and nobody else's.
func TestProcessingStrategy(t *testing.T) {
	for key := range monitors {
		for _, strategy := range []string{"", "null", "PROCESS", "PERSIST_ONLY"} {
			t.Run(key+"="+strategy, func(t *testing.T) {
				with := []string{file("store"), everyMonitor, "--set=gpuHealthMonitor.dcgm.trusted=true"}
				if strategy != "" {
					with = append(with, "--set", key+".processingStrategy="+strategy)
				}
				pods := workloads(t, rendered(t, with...))
				for other, monitor := range monitors {
					want := monitor.strategy
					if other == key && strategy != "" && strategy != "null" {
						want = strategy
					}
					got := slices.DeleteFunc(slices.Clone(pods[monitor.workload].Spec.Containers[0].Args), func(a string) bool {
						return !strings.HasPrefix(a, "--processingStrategy") && !strings.HasPrefix(a, "--processing-strategy")
					})
					if diff := cmp.Diff([]string{"--processingStrategy=" + want}, got); diff != "" {
						t.Errorf("%s (-want +got):\n%s", monitor.workload, diff)
					}
				}
			})
		}
	}
}

// TestAPortThatAnyPodReaches: nobody decides about repairs through such a port, whichever value
// sets PROCESS.
func TestAPortThatAnyPodReaches(t *testing.T) {
	for name, tc := range map[string]struct {
		with    []string
		refused string // the value that is named
	}{
		"PROCESS":                             {[]string{"--set=gpuHealthMonitor.processingStrategy=PROCESS"}, "gpuHealthMonitor.processingStrategy is PROCESS"},
		"PROCESS by the node's address":       {[]string{"--set=gpuHealthMonitor.processingStrategy=PROCESS,gpuHealthMonitor.dcgm.address=localhost:5555"}, "localhost:5555"},
		"PROCESS of one check":                {[]string{"--set-string=gpuHealthMonitor.config=[checks.GpuMemWatch]\nprocessingStrategy = 'PROCESS'"}, "gpuHealthMonitor.config is PROCESS"},
		"PROCESS of one check, in its line":   {[]string{`--set-string=gpuHealthMonitor.config=checks.GpuMemWatch = {"processingStrategy"="PROCESS"}`}, "gpuHealthMonitor.config is PROCESS"},
		"PROCESS as an argument":              {[]string{"--set=gpuHealthMonitor.extraArgs[0]=--processing-strategy=PROCESS"}, "gpuHealthMonitor.extraArgs is PROCESS"},
		"a comment":                           {[]string{"--set-string=gpuHealthMonitor.config=# processingStrategy = 'PROCESS'"}, ""},
		"PERSIST_ONLY":                        {[]string{"--set-string=gpuHealthMonitor.config=processingStrategy = 'PERSIST_ONLY'", "--set=gpuHealthMonitor.extraArgs[0]=--processingStrategy=PERSIST_ONLY"}, ""},
		"PROCESS by a port that is bounded":   {[]string{"--set=gpuHealthMonitor.processingStrategy=PROCESS,gpuHealthMonitor.dcgm.trusted=true"}, ""},
		"PROCESS by a socket of the node":     {[]string{"--set=gpuHealthMonitor.processingStrategy=PROCESS,gpuHealthMonitor.dcgm.address=unix:///run/dcgm/socket"}, ""},
		"PROCESS of a host engine of its own": {[]string{"--set=gpuHealthMonitor.processingStrategy=PROCESS,gpuHealthMonitor.dcgm.mode=embedded"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := template(t, append([]string{file("store"), everyMonitor}, tc.with...)...)
			switch {
			case tc.refused == "" && err != nil:
				t.Errorf("it is refused: %v", err)
			case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused) || !strings.Contains(err.Error(), "gpuHealthMonitor.dcgm.trusted=true")):
				t.Errorf("the error does not say %q and what to do: %v", tc.refused, err)
			}
		})
	}
}

// TestRefused: invalid values are reported when they are rendered, by the name of the value.
func TestRefused(t *testing.T) {
	set := func(values ...string) []string {
		with := []string{file("store")}
		for _, v := range values {
			with = append(with, "--set", v)
		}
		return with
	}
	for name, tc := range map[string]struct {
		with []string
		want []string
	}{
		"a strategy of the syslog monitor":  {set("syslogHealthMonitor.processingStrategy=process"), []string{"/syslogHealthMonitor/processingStrategy", "'PROCESS', 'PERSIST_ONLY'"}},
		"a strategy of the object monitor":  {set("kubernetesObjectMonitor.processingStrategy=STORE"), []string{"/kubernetesObjectMonitor/processingStrategy", "'PROCESS', 'PERSIST_ONLY'"}},
		"a strategy of the analyzer":        {set("healthEventsAnalyzer.processingStrategy=1"), []string{"/healthEventsAnalyzer/processingStrategy", "'PROCESS', 'PERSIST_ONLY'"}},
		"a strategy of count mismatches":    {set("labeler.gpuCountMismatch.processingStrategy=STORE"), []string{"/labeler/gpuCountMismatch/processingStrategy", "'PROCESS', 'PERSIST_ONLY'"}},
		"a version of DCGM":                 {set("labeler.assumeDcgmVersion=4"), []string{"/labeler/assumeDcgmVersion"}},
		"a strategy of coverage":            {set("platformConnectorsCluster.coverage.processingStrategy=STORE"), []string{"/platformConnectorsCluster/coverage/processingStrategy", "'PROCESS', 'PERSIST_ONLY'"}},
		"an unknown key":                    {set("syslogHealthMonitor.procesingStrategy=PERSIST_ONLY"), []string{"/syslogHealthMonitor", "'procesingStrategy' not allowed"}},
		"an unknown workload":               {set("nvlinkHealthMonitor.enabled=true"), []string{"'nvlinkHealthMonitor' not allowed"}},
		"a cloud that nobody named":         {set("cspHealthMonitor.enabled=true"), []string{"cspHealthMonitor.provider is empty", "cspHealthMonitor.clusterName is empty", "cspHealthMonitor.storeSecretName is empty", "for an account limited to maintenances"}},
		"a cloud that has no monitor":       {set("cspHealthMonitor.provider=lambda"), []string{"/cspHealthMonitor/provider", "'aws', 'azure', 'gcp', 'oci'"}},
		"an address without a port":         {set("gpuHealthMonitor.dcgm.address=nvidia-dcgm"), []string{"/gpuHealthMonitor/dcgm/address"}},
		"a mode of DCGM that is not there":  {set("gpuHealthMonitor.dcgm.mode=auto"), []string{"/gpuHealthMonitor/dcgm/mode"}},
		"a strategy of the clouds' monitor": {set("cspHealthMonitor.processingStrategy=STORE"), []string{"/cspHealthMonitor/processingStrategy", "'PROCESS', 'PERSIST_ONLY'"}},
		"a global key that nothing reads":   {set("global.dcgmEndpoint=x"), []string{"global.dcgmEndpoint: unknown key, use one of dryRun, imageRegistry"}},
		"a dry run that is misspelt":        {set("global.dry_run=true"), []string{"global.dry_run: use global.dryRun"}},
		"a global dry run that is text":     {set("global.dryRun=maybe"), []string{"/global/dryRun", "want boolean"}},
		"a plugin that is not enabled":      {set("janitor.enabled=true", "cspPluginAws.enabled=true", "janitor.terminateNodeController.cspPluginHost=csp-plugin-kwok"), []string{"janitor.terminateNodeController.cspPluginHost is csp-plugin-kwok", "not enabled"}},
		"one of two controllers":            {set("janitor.enabled=true", "cspPluginAws.enabled=true", "cspPluginKwok.enabled=true", "janitor.rebootNodeController.cspPluginHost=csp-plugin-aws"), []string{"janitor.terminateNodeController.cspPluginHost"}},
		"a dry run that is text":            {set("faultQuarantine.dryRun=maybe"), []string{"/faultQuarantine/dryRun", "want boolean"}},
		"no replica":                        {set("nodeDrainer.replicas=0"), []string{"/nodeDrainer/replicas"}},
		"a kind of owner":                   {set("eviction.ownerKinds[0].kind=statefulsets", "eviction.ownerKinds[0].mode=Immediate"), []string{"/eviction/ownerKinds/0/kind"}},
		"a mode of eviction":                {set("eviction.userNamespaces[0].name=x", "eviction.userNamespaces[0].mode=Now"), []string{"/eviction/userNamespaces/0/mode"}},
		"a cluster-wide stranger":           {set("platformConnectors.publishers[0].name=x", "platformConnectors.publishers[0].clusterWide=true"), []string{"/platformConnectors/publishers/0", "'account'"}},
		"no store":                          {nil, []string{"store.secretName is empty", "trial, set trialPostgresql.enabled=true", "SQLite works only on one host", "trialPostgresql.enabled"}},
		"a publisher without a connector":   {set("platformConnectors.enabled=false"), []string{"platformConnectors.enabled is false", "health-monitor"}},
		"a pipeline without its first file": {set("platformConnectors.pipeline.dedup\\.toml=x"), []string{"has no pipeline.toml: add this file"}},
		"an exporter without a receiver":    {set("eventExporter.enabled=true"), []string{"eventExporter.config is empty", "endpoint"}},
		"a janitor without a plugin":        {set("janitor.enabled=true"), []string{"no plugin is enabled", "janitor.cspPlugin.host"}},
		"resets of GPUs without an image":   {set("janitor.enabled=true", "cspPluginAws.enabled=true", "janitor.gpuReset.enabled=true"), []string{"janitor.gpuReset.image is empty"}},
		"a driver root that is relative":    {set("janitor.gpuReset.driverRoot=run"), []string{"/janitor/gpuReset/driverRoot"}},
		"two plugins behind one service":    {set("janitor.enabled=true", "cspPluginAws.enabled=true", "cspPluginKwok.enabled=true"), []string{"janitor.rebootNodeController.cspPluginHost", "csp-plugin-aws, csp-plugin-kwok"}},
		"an argument that is none":          {set("nodeDrainer.extraArgs[0]=dry-run"), []string{"/nodeDrainer/extraArgs/0"}},
		"a log level":                       {set("logLevel=verbose"), []string{"/logLevel"}},
		"a spool that holds no large batch": {set("platformConnectors.walMaxBytes=1024"), []string{"/platformConnectors/walMaxBytes"}},
		"connectors that go to the store":   {set("platformConnectors.upstream=store", "platformConnectors.storeSecretName=append-store", "platformConnectors.storeConnections=2"), []string{"platformConnectors.upstream was removed", "platformConnectors.storeSecretName was removed", "platformConnectors.storeConnections was removed", "platformConnectorsGateway", "docs/tasks/upgrade.md"}},
		"half a certificate":                {set("platformConnectorsGateway.tls.secretName=x"), []string{"both or neither of secretName"}},
		"metadata beside everybody's state": {set("hostPaths.metadataFile=/var/lib/nvsentinel/gpu_metadata.json"), []string{"hostPaths.metadataFile is /var/lib/nvsentinel/gpu_metadata.json", "hostPaths.state (/var/lib/nvsentinel)", "its own directory"}},
		"metadata above everybody's state":  {set("hostPaths.metadataFile=/var/lib/x.json", "hostPaths.state=/var/lib//nvsentinel/"), []string{"hostPaths.metadataFile is /var/lib/x.json", "hostPaths.state"}},
		"metadata above everything":         {set("hostPaths.metadataFile=/x.json"), []string{"hostPaths.metadataFile is /x.json"}},
		"metadata beside the socket":        {set("hostPaths.metadataFile=/var/run/nvsentinel/x.json"), []string{"hostPaths.run (/var/run/nvsentinel)"}},
		"metadata within somebody's state":  {set("hostPaths.metadataFile=/var/lib/nvsentinel/platform-connector/x.json"), []string{"the state of a service (/var/lib/nvsentinel/platform-connector)"}},
		"metadata that is a folder":         {set("hostPaths.metadataFile=/var/lib/nvsentinel/metadata/"), []string{"/hostPaths/metadataFile"}},
		"runs that are kept for no time":    {set("repairChain.runRetention=30d"), []string{"/repairChain/runRetention"}},
		"every kind":                        {chainKind("example.com", "*", ""), []string{"/repairChain/kinds/0/resource"}},
		"a part of a kind":                  {chainKind("", "pods/exec", ""), []string{"/repairChain/kinds/0/resource"}},
		"a kind of no place":                {chainKind("example.com", "validations", ""), []string{"repairChain.kinds[0], validations.example.com: set either the namespaces", "clusterWide: true"}},
		"a kind of two places":              {append(chainKind("example.com", "validations", "clusterWide=true"), "--set=repairChain.kinds[0].namespaces[0]=x"), []string{"repairChain.kinds[0]", "either the namespaces"}},
		"Nodes as steps":                    {chainKind("", "nodes", "clusterWide=true"), []string{"repairChain.kinds[0], nodes: built-in Kubernetes kinds"}},
		"roles as steps":                    {chainKind("rbac.authorization.k8s.io", "clusterroles", "clusterWide=true"), []string{"repairChain.kinds[0], clusterroles.rbac.authorization.k8s.io: built-in Kubernetes kinds"}},
		"the brake as a step":               {chainKind("", "configmaps", "namespaces[0]="+release), []string{"repairChain.kinds[0], configmaps: built-in Kubernetes kinds", "must not use the release namespace, " + release}},
		"templates that make templates":     {chainKind("nvsentinel.dgxc.nvidia.com", "repairtemplates", "clusterWide=true"), []string{"steps must not create templates"}},
		"a trial beside a store":            {set("trialPostgresql.enabled=true", "store.secretName=x"), []string{"trialPostgresql.enabled is true and store.secretName is x", "not for production"}},
		"a volume of no size":               {set("trialPostgresql.storage.size=much"), []string{"/trialPostgresql/storage/size"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := template(t, tc.with...)
			if err == nil {
				t.Fatal("it was rendered")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q:\n%v", part, err)
				}
			}
		})
	}
}

// TestSafeDefaults: with no more than a store nothing in the cluster is changed.
func TestSafeDefaults(t *testing.T) {
	pods := workloads(t, rendered(t, file("store")))
	for _, actor := range []string{"fault-quarantine", "node-drainer", "fault-remediation"} {
		if args := pods[actor].Spec.Containers[0].Args; !slices.Contains(args, "--dry-run=true") {
			t.Errorf("%s is not in dry run: %v", actor, args)
		}
	}
	for _, actor := range []string{"janitor", "repair-chain", "csp-plugin-aws", "csp-plugin-azure", "csp-plugin-gcp", "csp-plugin-kwok", "csp-plugin-node", "csp-plugin-oci"} {
		if _, there := pods[actor]; there {
			t.Errorf("%s is installed", actor)
		}
	}
}

// TestGPUResets: they are off, and what they need is there only where they are on, in
// the namespaces and for the image that the values name.
func TestGPUResets(t *testing.T) {
	const janitor = "--set=janitor.enabled=true,cspPluginAws.enabled=true"
	named := func(with ...string) (out []string) {
		for _, o := range rendered(t, append([]string{file("store"), "--namespace=gpu-health", janitor}, with...)...) {
			if !strings.Contains(o.GetName(), "gpu-reset") {
				continue
			}
			out = append(out, strings.TrimSpace(o.GetKind()+" "+o.GetNamespace()))
			text, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "serviceaccount:nvsentinel:") || o.GetKind() == "ValidatingAdmissionPolicy" && !strings.Contains(string(text), "== 'example.com/r:2'") {
				t.Errorf("%s", text)
			}
		}
		slices.Sort(out)
		return out
	}
	on := []string{"--set=janitor.gpuReset.enabled=true", "--set=janitor.gpuReset.image=example.com/r:2", "--set=janitor.gpuReset.servicesNamespace=gpus"}
	if got := named(); len(got) > 0 {
		t.Errorf("nobody asked for %v", got)
	}
	if got := named(append(on, "--set=global.dryRun=true")...); len(got) > 0 {
		t.Errorf("in a dry run there is %v", got)
	}
	want := []string{
		"ClusterRole", "ClusterRole", "ClusterRoleBinding", "ClusterRoleBinding", "Role gpu-health", "Role gpus", "RoleBinding gpu-health", "RoleBinding gpus",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	}
	if diff := cmp.Diff(want, named(on...)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

// TestRebootsThroughTheNode: the policy of the Jobs is for the account of the release and for
// the image of the plugin, which the plugin gets as an argument, and nothing is there without
// the value or in a dry run.
func TestRebootsThroughTheNode(t *testing.T) {
	const janitor = "--set=janitor.enabled=true"
	on := []string{"--set=cspPluginNode.enabled=true,cspPluginNode.startTimeout=90s", "--set=image.registry=example.com", "--set=image.pullSecrets[0].name=pull"}
	render := func(with ...string) []*unstructured.Unstructured {
		return rendered(t, append([]string{file("store"), janitor}, with...)...)
	}
	named := func(objects []*unstructured.Unstructured) (out []string) {
		for _, o := range objects {
			if strings.Contains(o.GetName(), "node-reboot") || strings.Contains(o.GetName(), "csp-plugin-node") {
				out = append(out, strings.TrimSpace(o.GetKind()+" "+o.GetNamespace()))
			}
		}
		slices.Sort(out)
		return out
	}
	if got := named(render("--set=cspPluginAws.enabled=true")); len(got) > 0 {
		t.Errorf("nobody asked for %v", got)
	}
	if got := named(render(append(on, "--set=global.dryRun=true")...)); len(got) > 0 {
		t.Errorf("in a dry run there is %v", got)
	}
	objects := render(on...)
	want := []string{
		"ClusterRole", "ClusterRoleBinding", "Deployment " + release, "PodDisruptionBudget " + release, "Role " + release, "RoleBinding " + release,
		"ServiceAccount " + release, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding",
	}
	if diff := cmp.Diff(want, slices.DeleteFunc(named(objects), func(s string) bool { return strings.HasPrefix(s, "NetworkPolicy") })); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	container := workloads(t, objects)["csp-plugin-node"].Spec.Containers[0]
	for _, arg := range []string{"--image=" + container.Image, "--namespace=" + release, "--start-timeout=90s", "--systemd-timeout=3m", "--image-pull-secrets=pull"} {
		if !slices.Contains(container.Args, arg) {
			t.Errorf("the plugin lacks %s: %v", arg, container.Args)
		}
	}
	policy, err := find(objects, "ValidatingAdmissionPolicy", "nvsentinel-node-reboot-jobs").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"container.image == '" + container.Image + "'", "system:serviceaccount:" + release + ":csp-plugin-node"} {
		if !strings.Contains(string(policy), part) {
			t.Errorf("the policy lacks %s", part)
		}
	}
}

// TestCoverage: it is off, and has its right only where it is on; its agent is the
// account of role cluster, and nobody else.
func TestCoverage(t *testing.T) {
	for value, want := range map[string]bool{"false": false, "true": true} {
		objects := rendered(t, file("store"), "--namespace=gpu-health", "--set=platformConnectorsCluster.coverage.enabled="+value)
		args := workloads(t, objects)["platform-connectors-cluster"].Spec.Containers[0].Args
		for _, arg := range []string{"--coverage", "--coverage-after=5m", "--coverage-processing-strategy=PERSIST_ONLY", "--coverage-namespace=gpu-health"} {
			if slices.Contains(args, arg) != want {
				t.Errorf("enabled=%s: %v", value, args)
			}
		}
		role := func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "Role" && o.GetName() == "nvsentinel-coverage"
		}
		if got := slices.ContainsFunc(objects, role); got != want {
			t.Errorf("enabled=%s: the right is rendered: %v", value, got)
		}
		for name, files := range texts(t, objects) {
			_, agent, _ := strings.Cut(files["connector.toml"], `name = "nvsentinel-coverage"`)
			if strings.Contains(agent, `account = "system:serviceaccount:gpu-health:platform-connectors-cluster"`) != (want && files["connector.toml"] != "") {
				t.Errorf("enabled=%s: %s has\n%s", value, name, files["connector.toml"])
			}
		}
	}
	if pods := workloads(t, rendered(t, file("store"))); slices.Contains(pods["platform-connectors-cluster"].Spec.Containers[0].Args, "--coverage") {
		t.Error("it is on by default")
	}
}

// TestCountMismatch: the policy about the labels of labeler is there with labeler, with
// PERSIST_ONLY unless the values state otherwise, and the connectors know its name; a policy of
// that name among one's own stands in for it.
func TestCountMismatch(t *testing.T) {
	const on = "--set=labeler.enabled=true"
	for name, tc := range map[string]struct {
		with []string
		want string // its strategy; none if empty
	}{
		"without labeler":       {nil, ""},
		"with labeler":          {[]string{on}, "PERSIST_ONLY"},
		"it is off":             {[]string{on, "--set=labeler.gpuCountMismatch.enabled=false"}, ""},
		"PROCESS":               {[]string{on, "--set=labeler.gpuCountMismatch.processingStrategy=PROCESS"}, "PROCESS"},
		"a policy of one's own": {[]string{on, "--set-string", "kubernetesObjectMonitor.policies=name = \"GpuCountMismatch\"\nprocessingStrategy = \"mine\""}, "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			files := texts(t, rendered(t, append([]string{file("store")}, tc.with...)...))
			policies := files["kubernetes-health-monitor-config"]["policies.toml"]
			if got := strings.Count(policies, `name = "GpuCountMismatch"`); got != min(1, len(tc.want)) {
				t.Errorf("it is there %d times:\n%s", got, policies)
			}
			_, policy, _ := strings.Cut(policies, `name = "GpuCountMismatch"`)
			if tc.want != "" && !strings.Contains(policy, `processingStrategy = "`+tc.want+`"`) {
				t.Errorf("its strategy is not %s:\n%s", tc.want, policy)
			}
			if known := strings.Contains(files["platform-connectors"]["connector.toml"], `"GpuCountMismatch"`); known != (tc.want != "") {
				t.Errorf("the connectors know it: %v", known)
			}
		})
	}
}

// TestSameEvictionPolicy: node-drainer and fault-remediation use one policy, which leaves the
// release's own pods alone.
func TestSameEvictionPolicy(t *testing.T) {
	files := texts(t, rendered(t, file("all")))
	drain := files["node-drainer"]["node-drainer.toml"]
	_, repair, found := strings.Cut(files["fault-remediation"]["fault-remediation.toml"], "[eviction]\n")
	if !found {
		t.Fatal("fault-remediation has no [eviction]")
	}
	if diff := cmp.Diff(drain, strings.ReplaceAll(repair, "[[eviction.", "[[")); diff != "" {
		t.Errorf("the policies differ (-drain +repair):\n%s", diff)
	}
	if want := "^(" + release + "|kube-system|monitoring-.*)$"; !strings.Contains(drain, want) {
		t.Errorf("the policy has no %s:\n%s", want, drain)
	}
}

// TestNodePolicies: they name the accounts of the release's namespace and the labels
// under fault-quarantine's prefix, and can be left out.
func TestNodePolicies(t *testing.T) {
	only := []string{file("store"), "--show-only=templates/admission.yaml"}
	for name, tc := range map[string]struct {
		with []string
		want string
	}{
		"the accounts of the release": {nil, "system:serviceaccount:" + release + ":platform-connectors'"},
		"the prefix by default":       {nil, `expression: "'k8saas.nvidia.com/'"`},
		"another prefix":              {[]string{"--set-string", `faultQuarantine.config=labelPrefix = "acme.example/"`}, `expression: "'acme.example/'"`},
	} {
		if text, err := template(t, append(slices.Clone(only), tc.with...)...); err != nil || !strings.Contains(text, tc.want) {
			t.Errorf("%s: no %s in the rendering (%v)", name, tc.want, err)
		}
	}
	if _, err := template(t, append(only, "--set-string", `faultQuarantine.config=labelPrefix = "a' + 'b"`)...); err == nil || !strings.Contains(err.Error(), "labelPrefix") {
		t.Errorf("a prefix that would be code: %v, want it refused", err)
	}
	for _, o := range rendered(t, file("store"), "--set=admission.nodes=false") {
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") && strings.Contains(o.GetName(), "-node-") {
			t.Errorf("%s %s is rendered although it is switched off", o.GetKind(), o.GetName())
		}
	}
}

// TestNamesOfAnotherNamespace: the policy about what is created knows the accounts
// of the release's namespace, and can be switched off.
func TestNamesOfAnotherNamespace(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false} {
		found := false
		for _, o := range rendered(t, file("store"), "--namespace=gpu-health", "--set=admission.names="+value) {
			if o.GetKind() != "ValidatingAdmissionPolicy" || o.GetName() != "nvsentinel-names" {
				continue
			}
			found = true
			text, err := json.Marshal(o.Object["spec"])
			if err != nil || strings.Contains(string(text), "serviceaccount:nvsentinel:") || !strings.Contains(string(text), "serviceaccount:gpu-health:janitor'") {
				t.Errorf("its accounts: %s, %v", text, err)
			}
		}
		if found != want {
			t.Errorf("admission.names=%s: rendered %v", value, found)
		}
	}
}

// TestKubeletEvents: the shipped policy on Events of the kubelet is for the record only,
// because tenants choose their text; one that asks for it is so where nobody sees to it
// that the kubelet wrote them.
func TestKubeletEvents(t *testing.T) {
	own := filepath.Join(t.TempDir(), "policies.toml")
	if err := os.WriteFile(own, []byte("[[policies]]\nname = \"Own\"\n# PERSIST_ONLY without admission.events\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]bool{"true": false, "false": true} {
		policies := func(args ...string) string {
			return texts(t, rendered(t, append([]string{file("store"), "--set=admission.events=" + value}, args...)...))["kubernetes-health-monitor-config"]["policies.toml"]
		}
		objects := rendered(t, file("store"), "--set=admission.events="+value)
		_, nvml, found := strings.Cut(policies(), `name = "NVMLError"`)
		if !found || !strings.Contains(nvml, "\nprocessingStrategy = \"PERSIST_ONLY\"\n") {
			t.Errorf("admission.events=%s: it is not for the record only:\n%s", value, nvml)
		}
		if text := policies("--set-file=kubernetesObjectMonitor.policies=" + own); strings.Contains(text, "\nprocessingStrategy = \"PERSIST_ONLY\"\n") != want {
			t.Errorf("admission.events=%s: for the record only, want %v:\n%s", value, want, text)
		}
		if policy := slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() == "nvsentinel-kubelet-events" }); policy == want {
			t.Errorf("admission.events=%s: the policy is rendered: %v", value, policy)
		}
	}
}

// TestNoShippedPolicyActsOnText: nor does one act on an object that a tenant may write.
func TestNoShippedPolicyActsOnText(t *testing.T) {
	files := map[string]string{"policies.toml": texts(t, rendered(t, file("store")))["kubernetes-health-monitor-config"]["policies.toml"]}
	examples, err := filepath.Glob(filepath.Join(root, "examples/policies/*.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(examples, filepath.Join(root, "distros/helm/nvsentinel/manifests/gpu-count-mismatch.toml")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	for name, text := range files {
		set, err := policy.Parse(name, text, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range set.Policies {
			for _, doubt := range p.Warnings(record.Process) {
				t.Errorf("%s: policy %s: %s", name, p.Name, doubt)
			}
		}
	}
	if len(files) < 3 {
		t.Errorf("%d files", len(files))
	}
}

// TestLists: the lists that people read are whole: of who speaks to the connector of
// its node, in the values, and of whose strategy can be set, on its page.
func TestLists(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	text := read("distros/helm/nvsentinel/values.yaml")
	_, list, _ := strings.Cut(text, "It has to run wherever a\n# publisher runs:")
	list, _, found := strings.Cut(list, "\nplatformConnectors:\n")
	if !found {
		t.Fatal("the values do not say where the connector has to run")
	}
	all := workloads(t, rendered(t, file("all")))
	for _, row := range regexp.MustCompile(`\(dict "name" "([\w-]+)" "enabled"`).FindAllStringSubmatch(read("distros/helm/nvsentinel/templates/_services.tpl"), -1) {
		_, there := all[row[1]]
		// coverage is a publisher of the cluster's connector, these plugins two of several
		if !there && !slices.Contains([]string{"nvsentinel-coverage", "csp-plugin-kwok", "csp-plugin-node"}, row[1]) {
			t.Errorf("testdata/all.yaml lacks %s, which has a row in templates/_services.tpl", row[1])
		}
	}
	for workload, pod := range all {
		publishes := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "connector" })
		if publishes != strings.Contains(list, workload) {
			t.Errorf("%s speaks to the connector of its node: %v; the values say\n%s", workload, publishes, list)
		}
	}
	_, row, _ := strings.Cut(read("docs/reference/processing-strategy.md"), "| Helm chart |")
	row, _, _ = strings.Cut(row, "\n")
	for key, value := range decode(t, text)[0].Object {
		of, _ := value.(map[string]any) // what is none has no strategy
		if _, has := of["processingStrategy"]; has != (monitors[key].workload != "") || has != strings.Contains(row, "`"+key+"`") {
			t.Errorf("%s has a strategy: %v; the page says %s", key, has, row)
		}
	}
}
