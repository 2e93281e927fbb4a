package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// probes asks every container what the kubelet asks it, and for its metrics.
func (j *journey) probes(ctx context.Context) (string, error) {
	pods, err := j.pods(ctx)
	asked := map[string]int{}
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, metricsOf(c)} {
				if probe == nil || probe.HTTPGet == nil {
					continue
				}
				path := probe.HTTPGet.Path
				url := "http://" + net.JoinHostPort(p.Status.PodIP, port(c, probe.HTTPGet.Port.String())) + path
				if problem := fetch(ctx, url); problem != nil {
					err = errors.Join(err, fmt.Errorf("pod %s: %w", p.Name, problem))
				}
				asked[path]++
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if asked[path] < len(pods) {
			err = errors.Join(err, fmt.Errorf("%d of %d pods have %s", asked[path], len(pods), path))
		}
	}
	return counted(asked), err
}

// metricsOf is the question for the metrics of a container that has some.
func metricsOf(c corev1.Container) *corev1.Probe {
	probe := c.ReadinessProbe.DeepCopy()
	if probe == nil || probe.HTTPGet == nil || port(c, "metrics") == "metrics" {
		return nil
	}
	probe.HTTPGet.Path, probe.HTTPGet.Port.StrVal = "/metrics", "metrics"
	return probe
}

// port is the number of a container's port, which may have a name.
func port(c corev1.Container, name string) string {
	for _, p := range c.Ports {
		if p.Name == name {
			return fmt.Sprint(p.ContainerPort)
		}
	}
	return name
}

// fetch wants an answer of 200 with something in it.
func fetch(ctx context.Context, url string) error {
	_, err := get(ctx, url)
	return err
}

func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || len(body) == 0) {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return body, err
}

// residentMemory is the line of a process about its memory.
var residentMemory = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`)

// footprint is what the installation takes: pods, images and memory.
func (j *journey) footprint(ctx context.Context) (string, error) {
	pods, err := j.pods(ctx)
	images, bytes := map[string]bool{}, 0.0
	for _, p := range pods {
		for _, c := range p.Spec.Containers {
			images[c.Image] = true
			if metricsOf(c) == nil {
				continue
			}
			page, problem := get(ctx, "http://"+net.JoinHostPort(p.Status.PodIP, port(c, "metrics"))+"/metrics")
			found := residentMemory.FindSubmatch(page)
			if problem == nil && found == nil {
				problem = errors.New("it does not say how much memory it has")
			}
			if problem != nil {
				err = errors.Join(err, fmt.Errorf("pod %s: %w", p.Name, problem))
				continue
			}
			of, problem := strconv.ParseFloat(string(found[1]), 64)
			err = errors.Join(err, problem)
			bytes += of
		}
	}
	return fmt.Sprintf("%d pods of %d images, %.0f MiB of resident memory", len(pods), len(images), bytes/(1<<20)), err
}

// claims are those of a projected token.
type claims struct {
	Audience   []string `json:"aud"`
	Kubernetes struct {
		Node struct{ Name string }
		Pod  struct{ Name string }
	} `json:"kubernetes.io"`
}

// tokens reads the tokens that the kubelet gave the pods: each is its pod's and its
// node's, and those for publishing are for nothing else.
func (j *journey) tokens(ctx context.Context) (string, error) {
	pods, err := j.pods(ctx)
	byAudience := map[string]int{}
	for _, p := range pods {
		files, problem := filepath.Glob(filepath.Join(j.machine.file("kubelet"), "pods", string(p.UID), "volumes/kubernetes.io~projected/*/*token*"))
		err = errors.Join(err, problem)
		for _, file := range files {
			c, problem := readToken(file)
			if problem == nil && (c.Kubernetes.Node.Name != nodeName || c.Kubernetes.Pod.Name != p.Name) {
				problem = fmt.Errorf("pod %s has a token of node %q and pod %q", p.Name, c.Kubernetes.Node.Name, c.Kubernetes.Pod.Name)
			}
			err = errors.Join(err, problem)
			byAudience[strings.Join(c.Audience, " ")]++
		}
	}
	if len(byAudience) < 2 {
		err = errors.Join(err, errors.New("there are no tokens for publishing, or none for the API server"))
	}
	return counted(byAudience), err
}

// readToken decodes a token, without verifying it: the API server has made it.
func readToken(file string) (c claims, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	parts := strings.Split(strings.TrimSpace(string(text)), ".")
	if len(parts) != 3 {
		return c, fmt.Errorf("%s has no token", file)
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	return c, json.Unmarshal(body, &c)
}

// counted lists how often each key occurred.
func counted(of map[string]int) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(of)) {
		out = append(out, fmt.Sprintf("%d %s", of[key], key))
	}
	return strings.Join(out, ", ")
}
