package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// serve starts a registry and returns its name.
func serve(t *testing.T, options ...registry.Option) string {
	t.Helper()
	server := httptest.NewServer(registry.New(append(options, registry.Logger(log.New(io.Discard, "", 0)))...))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// TestPush: a registry gets what the archive has, and the documents about it, whether
// it knows referrers or not.
func TestPush(t *testing.T) {
	for name, knows := range map[string]bool{"with referrers": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			at := serve(t, registry.WithReferrersSupport(knows))
			out, _ := mustBuild(t, lay(t), "--only=alpha", "--registry="+at+"/suite", "--push")
			ref := refer(t, at+"/suite/alpha:1.2.3")
			pushed, err := remote.Index(ref)
			if err != nil {
				t.Fatal(err)
			}
			digest, err := pushed.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if _, top := unpack(t, filepath.Join(out, "alpha.tar")); digest != top.Digest {
				t.Errorf("pushed %s, the archive has %s", digest, top.Digest)
			}
			checkProvenance(t, attached(t, ref, digest, statement), at+"/suite/alpha", digest)
			image, err := imageOf(t, pushed, host()).Digest()
			if err != nil {
				t.Fatal(err)
			}
			checkBill(t, attached(t, ref, image, billOfMaterials))
		})
	}
}

func refer(t *testing.T, text string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// attached is the only document of a kind that a registry has about a subject.
func attached(t *testing.T, ref name.Reference, subject v1.Hash, kind string) []byte {
	t.Helper()
	list, err := remote.Referrers(ref.Context().Digest(subject.String()))
	if err != nil {
		t.Fatal(err)
	}
	m, err := list.IndexManifest()
	if err != nil || len(m.Manifests) != 1 || m.Manifests[0].ArtifactType != kind {
		t.Fatalf("%s has the referrers %+v, %v; want one of %s", subject, m, err, kind)
	}
	artifact, err := remote.Image(ref.Context().Digest(m.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := artifact.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func checkProvenance(t *testing.T, text []byte, name string, digest v1.Hash) {
	t.Helper()
	var got struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		PredicateType string
		Predicate     struct {
			BuildDefinition struct {
				ExternalParameters struct {
					Image, Tag string
					Packages   []string
				}
				InternalParameters struct {
					Go    string
					Flags []string
				}
			}
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Subject) != 1 || got.Subject[0].Name != name || got.Subject[0].Digest["sha256"] != digest.Hex || got.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("it is about %+v, of %s", got.Subject, got.PredicateType)
	}
	d := got.Predicate.BuildDefinition
	if d.ExternalParameters.Image != "alpha" || !slices.Equal(d.ExternalParameters.Packages, []string{"./alpha"}) || d.ExternalParameters.Tag != "1.2.3" ||
		!strings.HasPrefix(d.InternalParameters.Go, "go1.") || !slices.Contains(d.InternalParameters.Flags, "-trimpath") {
		t.Errorf("it was made of %+v", d)
	}
}

func checkBill(t *testing.T, text []byte) {
	t.Helper()
	var bom cyclonedx.BOM
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range *bom.Components {
		names = append(names, c.Name)
		if c.Type == cyclonedx.ComponentTypeFile && (c.Hashes == nil || len((*c.Hashes)[0].Value) != 64) {
			t.Errorf("%s has no hash", c.Name)
		}
	}
	if want := []string{"std", "example.com/made", "/etc/ssl/certs/ca-certificates.crt", "/licenses/std/LICENSE", "/licenses/std/PATENTS", "/service"}; !slices.Equal(names, want) {
		t.Errorf("it lists %v, want %v", names, want)
	}
}

// TestToolsOfOtherPlatforms: an image of another platform has the tool that was collected
// there, and an empty folder is an error.
func TestToolsOfOtherPlatforms(t *testing.T) {
	dir := lay(t)
	other := slices.DeleteFunc(slices.Clone(supportedPlatforms), func(p string) bool { return p == host().String() })[0]
	tools := filepath.Join(dir, "tools")
	tool := filepath.Join(tools, strings.ReplaceAll(other, "/", "-"), "sh")
	if err := os.MkdirAll(tool, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"--only=beta", "--platforms=" + other, "--beside=" + tools}
	if code, _, output := build(t, dir, args...); code != 1 || !strings.Contains(output, "is empty: collect the tool with hack/sh.sh") {
		t.Errorf("status %d of an empty folder:\n%s", code, output)
	}
	if err := os.WriteFile(filepath.Join(tool, "sh"), []byte("collected"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, output := mustBuild(t, dir, args...)
	bill, err := os.ReadFile(filepath.Join(out, "beta."+strings.ReplaceAll(other, "/", "-")+".cdx.json"))
	if err != nil || !strings.Contains(string(bill), `"/sh"`) || strings.Contains(output, "without sh") {
		t.Errorf("the image has not the tool: %v\n%s\n%s", err, bill, output)
	}
}

// TestBase: what needs cgo is put upon the base that is named, and keeps of it what the
// build does not set.
func TestBase(t *testing.T) {
	at := serve(t)
	base, err := random.Image(64, 2)
	if err != nil {
		t.Fatal(err)
	}
	base, err = mutate.ConfigFile(base, &v1.ConfigFile{
		OS: host().OS, Architecture: host().Architecture,
		Config: v1.Config{User: "0", Cmd: []string{"sh"}, Env: []string{"PATH=/sbin", "LIBRARY=here"}},
		RootFS: rootFS(t, base),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(refer(t, at+"/base:1"), base); err != nil {
		t.Fatal(err)
	}
	out, _ := mustBuild(t, lay(t), "--only=gamma", "--base="+at+"/base:1")
	idx, _ := unpack(t, filepath.Join(out, "gamma.tar"))
	config, err := imageOf(t, idx, host()).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if want := []string{"LIBRARY=here", "PATH=/usr/bin"}; !slices.Equal(c.Env, want) || c.User != "65532:65532" || len(c.Cmd) != 0 {
		t.Errorf("variables %v, user %s, command %v; want %v, no other user and none", c.Env, c.User, c.Cmd, want)
	}
	if got := c.Labels["org.opencontainers.image.base.name"]; got != at+"/base:1" || len(config.RootFS.DiffIDs) != 5 {
		t.Errorf("%d layers upon %q, want 5", len(config.RootFS.DiffIDs), got)
	}
	digest, err := base.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(out, "gamma.provenance.json")); err != nil || !strings.Contains(string(text), digest.Hex) {
		t.Errorf("the provenance does not have the base's digest: %v\n%s", err, text)
	}
	if want := rootFS(t, base).DiffIDs; !reflect.DeepEqual(config.RootFS.DiffIDs[:2], want) {
		t.Errorf("the first layers are not the base's")
	}
}

func rootFS(t *testing.T, img v1.Image) v1.RootFS {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return c.RootFS
}
