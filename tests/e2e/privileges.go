package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// privileges compares what the processes may do with the list of docs/reference/permissions.md:
// who runs as root, and with which capabilities.
func (j *journey) privileges(ctx context.Context) (string, error) {
	pods, err := j.pods(ctx)
	if err != nil {
		return "", err
	}
	tasks, err := j.machine.processes(ctx)
	if err != nil {
		return "", err
	}
	pids := map[string]int{}
	for _, t := range tasks {
		pids["containerd://"+t.container] = t.pid
	}
	listed, err := Privileged(j.Root)
	if err != nil {
		return "", err
	}
	var found []string
	for i := range pods {
		for _, c := range pods[i].Status.ContainerStatuses {
			may, problem := mayOf(pids[c.ContainerID])
			if problem == nil && !may.readOnly {
				problem = fmt.Errorf("container %s of pod %s can write into its image", c.Name, pods[i].Name)
			}
			err = errors.Join(err, problem)
			if line := workload(&pods[i]) + ": " + may.String(); may.more() && !slices.Contains(found, line) {
				found = append(found, line)
			}
		}
	}
	slices.Sort(found)
	for _, line := range found {
		if !slices.Contains(listed, line) {
			err = errors.Join(err, fmt.Errorf("docs/reference/permissions.md does not list %q", line))
		}
	}
	return strings.Join(found, "; "), err
}

// Privileged is the list of docs/reference/permissions.md: a line "workload: user, capabilities" for
// each way in which one runs as root or may more than a user.
func Privileged(root string) (out []string, err error) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "permissions.md"))
	if err != nil {
		return nil, err
	}
	_, section, is := strings.Cut(string(page), "## What runs as root")
	if !is {
		return nil, errors.New("docs/reference/permissions.md has no section about what runs as root")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "| `") && len(cells) > 4 {
			out = append(out, strings.Trim(strings.TrimSpace(cells[1]), "`")+": "+strings.TrimSpace(cells[2])+", "+strings.TrimSpace(cells[3]))
		}
	}
	return out, nil
}

// workload is the name that a pod has of its chart.
func workload(p *corev1.Pod) string { return p.Labels["app.kubernetes.io/name"] }

// may is what a process may do beyond a user's.
type may struct {
	user         string
	capabilities string // as the kernel writes the set
	bound        string // all that a process of this node may have
	readOnly     bool   // the root of its files
}

// more reports whether it is more than nothing.
func (m may) more() bool { return m.user == "0" || m.capabilities != noCapability }

// Sets of capabilities as the kernel writes them.
const (
	noCapability = "0000000000000000"
	readSearch   = "0000000000000004"
)

func (m may) String() string {
	subject := "user " + m.user
	if m.user == "0" {
		subject = "root"
	}
	switch m.capabilities {
	case noCapability:
		return subject + ", none"
	case readSearch:
		return subject + ", DAC_READ_SEARCH"
	case m.bound:
		return subject + ", all (privileged)"
	}
	return subject + ", capabilities " + m.capabilities
}

// mayOf reads it of a process from the kernel.
func mayOf(pid int) (m may, err error) {
	if pid == 0 {
		return m, errors.New("a container has no process")
	}
	own, err := statusOf("self")
	if err != nil {
		return m, err
	}
	status, err := statusOf(strconv.Itoa(pid))
	if err != nil {
		return m, err
	}
	m.user, m.capabilities, m.bound = status["Uid:"], status["CapEff:"], own["CapEff:"]
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", pid))
	for line := range strings.Lines(string(mounts)) {
		if words := strings.Fields(line); len(words) > 3 && words[1] == "/" {
			m.readOnly = strings.HasPrefix(words[3], "ro")
		}
	}
	return m, err
}

// statusOf returns the first value of each line of the kernel's status of a process.
func statusOf(process string) (map[string]string, error) {
	text, err := os.ReadFile("/proc/" + process + "/status")
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 {
			out[words[0]] = words[1]
		}
	}
	return out, err
}
