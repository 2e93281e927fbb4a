package journey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Keep writes what is left of a trip into a folder: its plan and what it
// broke, the records, the Node and its maintenance objects as JSON, and the logs of
// the control services, of the node's own and of Kubernetes' simulation.
func (r Result) Keep(ctx context.Context, j *Journey, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("keeping the evidence: %w", err)
	}
	problems := []error{os.WriteFile(filepath.Join(dir, "plan.txt"), []byte(r.String()+"\n"), 0o644)}
	records, err := r.run.records(ctx)
	problems = append(problems, err, writeJSON(dir, "records.json", records))
	node, err := j.Fleet.Node(ctx, r.Node)
	problems = append(problems, err, writeJSON(dir, "node.json", node))
	repairs, err := r.run.objects(ctx)
	problems = append(problems, err, writeJSON(dir, "repairs.json", repairs))
	problems = append(problems, j.copyLogs(r.Node, dir))
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("keeping the evidence: %w", err)
	}
	return nil
}

func (j *Journey) copyLogs(node, dir string) error {
	files := []string{
		filepath.Join(j.Fleet.Dir, "journal.jsonl"), filepath.Join(j.Fleet.Dir, "machines", node, "kernel", "dmesg"), j.hitsFile(),
		filepath.Join(j.Fleet.Cluster.Dir(), "kwok.log"), filepath.Join(j.Fleet.Cluster.Dir(), "kube-controller-manager.log"),
	}
	for _, s := range j.Fleet.Services() {
		if !strings.Contains(s.Name, "@") || strings.HasSuffix(s.Name, "@"+node) {
			files = append(files, s.Log)
		}
	}
	var problems []error
	for _, from := range files {
		if err := copyFile(from, filepath.Join(dir, filepath.Base(from))); !errors.Is(err, os.ErrNotExist) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func writeJSON(dir, name string, what any) error {
	b, err := json.MarshalIndent(what, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), append(b, '\n'), 0o644)
}
