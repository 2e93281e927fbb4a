package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nvidia/nvsentinel/hack/tools/licenses"
)

// The kinds of documents that describe what an image is made of, and how.
const (
	billOfMaterials = "application/vnd.cyclonedx+json"
	statement       = "application/vnd.in-toto+json"
)

// document is what belongs to an image and is not in it.
type document struct {
	// Suffix is that of its file, behind the image's name.
	Suffix, MediaType string
	// Subject is what it is about.
	Subject v1.Descriptor
	Text    []byte
}

// bill lists what is in an image: the programs' modules, as the programs themselves report
// them, and every file, with their hashes.
func (r recipe) bill(e entry, v variant, subject v1.Descriptor) (document, error) {
	doc := document{Suffix: "." + v.Platform.OS + "-" + v.Platform.Architecture + ".cdx.json", MediaType: billOfMaterials, Subject: subject}
	parts, err := r.modules(v.Programs)
	if err != nil {
		return doc, err
	}
	for _, name := range slices.Sorted(maps.Keys(v.Files)) {
		sum, err := sha256Of(v.Files[name])
		if err != nil {
			return doc, err
		}
		parts = append(parts, cyclonedx.Component{
			BOMRef: "/" + name, Type: cyclonedx.ComponentTypeFile, Name: "/" + name,
			Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: sum}},
		})
	}
	bom := cyclonedx.NewBOM()
	bom.Components = &parts
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.Time.Format(time.RFC3339),
		Component: &cyclonedx.Component{
			BOMRef: e.Name, Type: cyclonedx.ComponentTypeContainer, Name: e.Name, Version: r.Tag,
			Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: subject.Digest.Hex}},
		},
	}
	var text bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&text, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	doc.Text = text.Bytes()
	return doc, err
}

// modules are those of programs, each once.
func (r recipe) modules(programs tree) ([]cyclonedx.Component, error) {
	var parts []cyclonedx.Component
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		built, err := buildinfo.ReadFile(programs[name])
		if err != nil {
			return nil, err
		}
		std := debug.Module{Path: "std", Version: strings.TrimPrefix(built.GoVersion, "go")}
		for _, m := range append([]*debug.Module{&std, &built.Main}, built.Deps...) {
			c := module(m, r.Tag)
			if !slices.ContainsFunc(parts, func(p cyclonedx.Component) bool { return p.BOMRef == c.BOMRef }) {
				parts = append(parts, c)
			}
		}
	}
	return parts, nil
}

// licenses are the license files of the modules of programs.
func (r recipe) licenses(ctx context.Context, programs tree) (tree, error) {
	finder, err := licenses.New(ctx, r.Root)
	if err != nil {
		return nil, err
	}
	out := tree{}
	for _, program := range programs {
		built, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, err
		}
		files, err := finder.Files(built)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, files)
	}
	return out, nil
}

// module is a Go module as a component; one of the workspace has the images' version.
func module(m *debug.Module, version string) cyclonedx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version}
	if c.Version == "" || c.Version == "(devel)" {
		c.Version = version
	}
	c.PackageURL = "pkg:golang/" + c.Name + "@" + c.Version
	c.BOMRef = c.PackageURL
	// Go's own hash is one of SHA-256 too, over the hashes of the module's files.
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) == sha256.Size {
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c
}

func sha256Of(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// fields are those of a JSON object.
type fields map[string]any

// provenance is an in-toto statement of how an image was made, in the words of SLSA.
// Nobody has signed it.
func (r recipe) provenance(e entry, subject v1.Descriptor, variants []variant) (document, error) {
	doc := document{Suffix: ".provenance.json", MediaType: statement, Subject: subject}
	ref, err := r.reference(e.Name)
	if err != nil {
		return doc, err
	}
	built, err := buildinfo.ReadFile(variants[0].Programs[service])
	if err != nil {
		return doc, err
	}
	sources, changed, err := r.sources(variants)
	if err != nil {
		return doc, err
	}
	var platforms []string
	for _, v := range variants {
		platforms = append(platforms, v.Platform.String())
	}
	doc.Text, err = json.MarshalIndent(fields{
		"_type":         "https://in-toto.io/Statement/v1",
		"predicateType": "https://slsa.dev/provenance/v1",
		"subject":       []fields{{"name": ref.Context().Name(), "digest": fields{subject.Digest.Algorithm: subject.Digest.Hex}}},
		"predicate": fields{
			"buildDefinition": fields{
				"buildType":            source + "/hack/tools/images",
				"externalParameters":   fields{"image": e.Name, "packages": e.Packages, "registry": r.Registry, "tag": r.Tag, "platforms": platforms, "base": r.Base},
				"internalParameters":   fields{"go": built.GoVersion, "flags": r.flags(e), "cgo": e.Cgo, "sourceDateEpoch": r.Time.Unix(), "changedSinceCommit": changed},
				"resolvedDependencies": sources,
			},
			"runDetails": fields{"builder": fields{"id": source + "/Makefile#images"}},
		},
	}, "", "  ")
	return doc, err
}

// sources are the commit, the authorities and the base; changed reports whether the tree
// differs from the commit.
func (r recipe) sources(variants []variant) (out []fields, changed bool, err error) {
	authorities, err := sha256Of(r.Authorities)
	if err != nil {
		return nil, false, err
	}
	commit, changed := strings.CutSuffix(r.Revision, "-dirty")
	out = []fields{
		{"uri": "git+" + source, "digest": fields{"gitCommit": commit}},
		{"uri": "file:///" + trusted, "digest": fields{"sha256": authorities}},
	}
	for _, v := range variants {
		if v.Base != "" {
			out = append(out, fields{"uri": r.Base, "digest": fields{"sha256": v.Base}})
		}
	}
	return out, changed, nil
}

// documents are what belongs to an image: a bill for each platform and a provenance.
func (r recipe) documents(e entry, idx v1.Descriptor, variants []variant) ([]document, error) {
	var out []document
	for _, v := range variants {
		subject, err := descriptor(v.Image)
		if err != nil {
			return nil, err
		}
		doc, err := r.bill(e, v, subject)
		if err != nil {
			return nil, fmt.Errorf("listing what is in %s: %w", e.Name, err)
		}
		out = append(out, doc)
	}
	doc, err := r.provenance(e, idx, variants)
	return append(out, doc), err
}
