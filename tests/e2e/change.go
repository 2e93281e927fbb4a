package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// policies has one policy, which reports a Node that a person has labeled as broken.
const policies = `[[policies]]
name = "SaidByAPerson"
enabled = true
[policies.resource]
group = ""
version = "v1"
kind = "Node"
[policies.predicate]
expression = "resource.metadata.?labels[?'example.com/broken'].orValue('') == 'true'"
[policies.healthEvent]
componentClass = "Node"
isFatal = true
message = "a person says that the node is broken"
recommendedAction = "CONTACT_SUPPORT"
processingStrategy = "PERSIST_ONLY"
`

// policy changes policies.toml, which the monitor takes over while it runs.
func (j *journey) policy(ctx context.Context) (string, error) {
	if err := j.write("policies.toml", policies); err != nil {
		return "", err
	}
	if err := j.upgrade(ctx, "repair", "--set-file kubernetesObjectMonitor.policies=policies.toml"); err != nil {
		return "", err
	}
	if _, err := j.run(ctx, "kubectl label node "+nodeName+" example.com/broken=true"); err != nil {
		return "", err
	}
	found, err := j.waitForOutput(ctx, 3*time.Minute, "nvsentinel why --all "+nodeName, "SaidByAPerson")
	if err != nil {
		return "", err
	}
	_, err = j.run(ctx, "kubectl label node "+nodeName+" example.com/broken-")
	return "why says " + found, err
}

// strategy has a fault stored and nothing else, and goes back to before by a rollback.
func (j *journey) strategy(ctx context.Context) (string, error) {
	const strategy = "--set syslogHealthMonitor.processingStrategy=PERSIST_ONLY"
	if err := j.upgrade(ctx, "repair", strategy); err != nil {
		return "", err
	}
	if err := gpuFalls(3); err != nil {
		return "", err
	}
	found, err := j.waitForOutput(ctx, time.Minute, "nvsentinel why --all "+nodeName, "0000:13:00", "PERSIST_ONLY")
	if err != nil {
		return "", err
	}
	return found + ", and for 10 s nothing is on the node", j.expectIdle(ctx, 10*time.Second)
}

// rollback goes back to what was before the strategy's change.
func (j *journey) rollback(ctx context.Context) (string, error) {
	if _, err := j.run(ctx, "helm rollback nvsentinel -n "+namespace+" --wait --timeout 4m"); err != nil {
		return "", err
	}
	pods, err := j.pods(ctx)
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			if workload(&p) == "syslog-health-monitor" && !strings.Contains(strings.Join(c.Args, " "), "--processingStrategy=PROCESS") {
				err = errors.Join(err, fmt.Errorf("pod %s has %v", p.Name, c.Args))
			}
		}
	}
	return "PROCESS again", err
}

// definitions upgrades to a chart whose definitions have changed, by the page's command.
func (j *journey) definitions(ctx context.Context) (string, error) {
	next := filepath.Join(j.dir, "next")
	if err := os.CopyFS(next, os.DirFS(filepath.Join(j.Root, "distros"))); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(next, "helm/nvsentinel/crds/*.yaml"))
	for _, file := range files {
		text, problem := os.ReadFile(file)
		changed := strings.Replace(string(text), "description: ", "description: Changed. ", 1)
		err = errors.Join(err, problem, os.WriteFile(file, []byte(changed), 0o600))
	}
	if err != nil {
		return "", err
	}
	command, err := definitionsCommand(j.page)
	if err != nil {
		return "", err
	}
	_, err = j.run(ctx, "rm distros && mv next distros && "+command)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d definitions changed by %s", len(files), command), j.upgrade(ctx, "watch")
}

// definitionsCommand is the page's for changed definitions.
func definitionsCommand(page string) (string, error) {
	_, command, is := strings.Cut(page, "`helm upgrade` does not touch `crds/`: `")
	command, _, _ = strings.Cut(command, "`")
	if !is || !strings.HasPrefix(command, "kubectl apply") {
		return "", errors.New("docs/tasks/upgrade.md has no command for changed definitions")
	}
	return command, nil
}
