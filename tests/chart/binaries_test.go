package chart

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/tests/fleet"
)

var buildServices = sync.OnceValues(func() (string, error) {
	repository, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	return fleet.Build(context.Background(), repository, filepath.Join(tools, "services"), os.Stderr)
})

// binaries are the programs of the containers that are not named after them.
var binaries = map[string]string{
	"platform-connectors-cluster": "platform-connectors", "platform-connectors-gateway": "platform-connectors",
}

// TestServicesTakeTheirArguments: each container's program, with the container's
// own arguments, variables and files, finds its configuration valid. The folders
// of the container are below one of the test's.
func TestServicesTakeTheirArguments(t *testing.T) {
	bin, err := buildServices()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range values {
		objects := rendered(t, file(name))
		files := texts(t, objects)
		for workload, pod := range workloads(t, objects) {
			t.Run(name+"/"+workload, func(t *testing.T) {
				program := workload
				if other, ok := binaries[workload]; ok {
					program = other
				}
				container := pod.Spec.Containers[0]
				if len(container.Command) > 0 {
					program = strings.TrimPrefix(container.Command[0], "/")
				}
				if workload == "platform-connectors" {
					program = "node-connector"
				}
				if strings.Contains(container.Image, "/nvsentinel-controller:") {
					program = "nvsentinel-controller"
				}
				args, env := settle(t, pod, files)
				ask := append(slices.Clone(args), "--check-config")
				if workload == "kubernetes-object-monitor" {
					// It reads the policies only when it runs; this reads nothing else.
					run(t, filepath.Join(bin, program), []string{args[0], "rbac", args[1]}, env)
				}
				out := run(t, filepath.Join(bin, program), ask, env)
				if !strings.Contains(out, "the configuration is valid") {
					t.Errorf("%v says\n%s", container.Args, out)
				}
			})
		}
	}
	for name, tc := range map[string]struct{ value, want string }{
		"a wrong file is noticed": {"faultQuarantine.config=unknown = 1", `unknown key "unknown"`},
		"a wrong flag is noticed": {"faultQuarantine.extraArgs[0]=--unknown=1", "flag provided but not defined: -unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := rendered(t, file("store"), "--set", tc.value)
			args, env := settle(t, workloads(t, objects)["fault-quarantine"], texts(t, objects))
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "nvsentinel-controller"), append(args, "--check-config")...)
			cmd.Env = env
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// run runs a program that must end well.
func run(t *testing.T, program string, args, env []string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %v: %v\n%s", filepath.Base(program), args, err, out)
	}
	return string(out)
}

// settle lays out a container's files in a folder and returns its arguments and
// variables as they are there.
func settle(t *testing.T, pod corev1.PodTemplateSpec, configs map[string]map[string]string) (args, env []string) {
	t.Helper()
	dir, container := t.TempDir(), pod.Spec.Containers[0]
	var moved []string
	for _, m := range container.VolumeMounts {
		moved = append(moved, m.MountPath, filepath.Join(dir, m.MountPath))
	}
	there := strings.NewReplacer(longestFirst(moved)...)
	for _, m := range container.VolumeMounts {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		for name, text := range content(pod.Spec.Volumes[i], configs) {
			path := filepath.Join(dir, m.MountPath, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(there.Replace(text)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	names := strings.NewReplacer("$(NODE_NAME)", "gpu-1")
	for _, a := range container.Args {
		args = append(args, names.Replace(there.Replace(a)))
	}
	for _, e := range container.Env {
		if e.ValueFrom == nil {
			env = append(env, fmt.Sprintf("%s=%s", e.Name, e.Value))
		}
	}
	return args, env
}

// longestFirst orders pairs of texts by the length of the first.
func longestFirst(pairs []string) []string {
	chunks := slices.Collect(slices.Chunk(pairs, 2))
	slices.SortFunc(chunks, func(a, b []string) int { return len(b[0]) - len(a[0]) })
	return slices.Concat(chunks...)
}

// content are the files of a volume; of a Secret those that its owner would put in.
func content(v corev1.Volume, configs map[string]map[string]string) map[string]string {
	switch {
	case v.ConfigMap != nil:
		return configs[v.ConfigMap.Name]
	case v.Secret != nil && v.Name == "store":
		return map[string]string{v.Secret.Items[0].Path: "postgres://nvsentinel:secret@db.example.com/nvsentinel?sslmode=require"}
	case v.Secret != nil:
		return map[string]string{"ca.crt": "", "tls.crt": "", "tls.key": "", "oidc-client-secret": "secret"}
	case v.Projected != nil && v.Projected.Sources[0].ConfigMap != nil:
		files := map[string]string{}
		for _, s := range v.Projected.Sources {
			maps.Copy(files, configs[s.ConfigMap.Name])
		}
		return files
	case v.Projected != nil:
		return map[string]string{"token": "token"}
	default:
		return nil
	}
}
