package main

import (
	"context"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// push brings an image to its registry, and attaches its documents as referrers.
func push(ctx context.Context, ref name.Tag, idx v1.ImageIndex, docs []document) error {
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(ref, idx, options...); err != nil {
		return err
	}
	for _, doc := range docs {
		img, err := doc.artifact()
		if err != nil {
			return err
		}
		digest, err := img.Digest()
		if err != nil {
			return err
		}
		if err := remote.Write(ref.Context().Digest(digest.String()), img, options...); err != nil {
			return err
		}
	}
	return nil
}

// artifact is a document as registries keep it.
func (d document) artifact() (v1.Image, error) {
	// A registry takes the type of the configuration for the artifact's.
	bare := mutate.ConfigMediaType(toOCI(empty.Image), types.MediaType(d.MediaType))
	img, err := mutate.Append(bare, mutate.Addendum{Layer: static.NewLayer(d.Text, types.MediaType(d.MediaType))})
	if err != nil {
		return nil, err
	}
	return mutate.Subject(img, d.Subject).(v1.Image), nil
}

// descriptor is what others name an image or an index by.
func descriptor(d partial.Describable) (v1.Descriptor, error) {
	out, err := partial.Descriptor(d)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return *out, nil
}
