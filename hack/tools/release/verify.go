package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// The kinds of documents that make images attaches.
const (
	billOfMaterials = "application/vnd.cyclonedx+json"
	statement       = "application/vnd.in-toto+json"
)

// listed is an image of a release: repository:tag@digest.
type listed struct {
	Tag    name.Tag
	Digest v1.Hash
}

// verify compares a registry with what a release lists, and reports everything that differs.
func verify(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("verify", flag.ContinueOnError)
	flags.SetOutput(stderr)
	digests := flags.String("digests", "", "`File` with one image a line: repository:tag@sha256:...")
	documents := flags.String("documents", "", "`Folder` with the documents of make images.")
	attestations := flags.String("attestations", "", "`File` that gets a line for each document: its subject, its type and its file.")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *digests == "" || *documents == "" || flags.NArg() > 0 {
		return fmt.Errorf("%w: verify needs --digests and --documents, and takes no other argument", errArguments)
	}
	file, err := os.Open(*digests)
	if err != nil {
		return fmt.Errorf("reading the images of the release: %w", err)
	}
	defer file.Close()
	images, err := parseListed(file)
	if err != nil {
		return err
	}
	v := &verifier{dir: *documents, options: []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}}
	var problems []error
	for _, image := range images {
		platforms, err := v.image(image)
		if err != nil {
			problems = append(problems, fmt.Errorf("verifying %s: %w", image.Tag, err))
			continue
		}
		fmt.Fprintf(stdout, "verified %s %s (%s)\n", image.Tag, image.Digest, strings.Join(platforms, ", "))
	}
	if *attestations != "" && len(problems) == 0 {
		if err := os.WriteFile(*attestations, v.found.Bytes(), 0o644); err != nil {
			problems = append(problems, fmt.Errorf("writing the attestations: %w", err))
		}
	}
	return errors.Join(problems...)
}

// parseListed reads one image a line.
func parseListed(from io.Reader) ([]listed, error) {
	var out []listed
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		tagged, sum, found := strings.Cut(line, "@")
		tag, err := name.NewTag(tagged, name.StrictValidation)
		if !found || err != nil {
			return nil, fmt.Errorf("reading the images of the release: the line %q has not the form repository:tag@digest", line)
		}
		digest, err := v1.NewHash(sum)
		if err != nil {
			return nil, fmt.Errorf("reading the digest of %s: %w", tag, err)
		}
		out = append(out, listed{tag, digest})
	}
	if len(out) == 0 {
		return nil, errors.New("reading the images of the release: the list is empty, nothing was published")
	}
	return out, lines.Err()
}

// verifier compares images in a registry with the documents in a folder.
type verifier struct {
	dir     string
	options []remote.Option
	// found has a line for each document: its subject, its type in the terms of cosign, its file.
	found bytes.Buffer
}

// image verifies one image of all its platforms, and returns these.
func (v *verifier) image(l listed) (platforms []string, err error) {
	index, err := remote.Index(l.Tag, v.options...)
	if err != nil {
		return nil, err
	}
	got, err := index.Digest()
	if err != nil {
		return nil, err
	}
	if got != l.Digest {
		return nil, fmt.Errorf("its digest is %s, the release lists %s", got, l.Digest)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	short := path.Base(l.Tag.RepositoryStr())
	provenance, err := v.document(l.Tag, got, statement, short+".provenance.json")
	if err != nil {
		return nil, err
	}
	if err := about(provenance, got); err != nil {
		return nil, err
	}
	for _, m := range manifest.Manifests {
		if m.Platform == nil {
			return nil, fmt.Errorf("its image %s has no platform", m.Digest)
		}
		file := fmt.Sprintf("%s.%s-%s.cdx.json", short, m.Platform.OS, m.Platform.Architecture)
		if _, err := v.document(l.Tag, m.Digest, billOfMaterials, file); err != nil {
			return nil, err
		}
		platforms = append(platforms, m.Platform.String())
	}
	return platforms, nil
}

// document is the only document of a kind about a subject. It is the one in the file.
func (v *verifier) document(tag name.Tag, subject v1.Hash, kind, file string) ([]byte, error) {
	referrers, err := remote.Referrers(tag.Context().Digest(subject.String()), v.options...)
	if err != nil {
		return nil, err
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		return nil, err
	}
	var found []v1.Descriptor
	for _, m := range manifest.Manifests {
		if m.ArtifactType == kind {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%s has %d documents of the kind %s, want 1", subject, len(found), kind)
	}
	text, err := v.content(tag.Context().Digest(found[0].Digest.String()))
	if err != nil {
		return nil, err
	}
	want, err := os.ReadFile(filepath.Join(v.dir, file))
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(text, want) {
		return nil, fmt.Errorf("the document %s of the registry differs from %s", kind, file)
	}
	fmt.Fprintf(&v.found, "%s@%s %s %s\n", tag.Context().Name(), subject, map[string]string{billOfMaterials: "cyclonedx", statement: "slsaprovenance1"}[kind], file)
	return text, nil
}

// content is the only layer of an artifact.
func (v *verifier) content(ref name.Digest) ([]byte, error) {
	artifact, err := remote.Image(ref, v.options...)
	if err != nil {
		return nil, err
	}
	layers, err := artifact.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) != 1 {
		return nil, fmt.Errorf("the artifact %s has %d layers, want 1", ref, len(layers))
	}
	reader, err := layers[0].Compressed()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return io.ReadAll(reader)
}

// about is an error unless an in-toto statement has the digest as its only subject.
func about(text []byte, digest v1.Hash) error {
	var s struct {
		Subject []struct{ Digest map[string]string }
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("reading the provenance: %w", err)
	}
	if len(s.Subject) != 1 || s.Subject[0].Digest[digest.Algorithm] != digest.Hex {
		return fmt.Errorf("the provenance is about %v, want %s", s.Subject, digest)
	}
	return nil
}
