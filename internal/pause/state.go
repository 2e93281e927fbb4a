package pause

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// ByKey of its data names who switched it, as that user states.
	ByKey = "by"
	// manager is the name under which the API server keeps what Set wrote.
	manager = "nvsentinel-cli"
)

// State is the state of the emergency stop.
type State struct {
	On bool
	// By and Reason are what the user who switched it last gave; By is the tool's name
	// where nothing else was given.
	By, Reason string
	// Since is when it was switched last, in whole seconds of the API server's
	// clock; zero if that is not known.
	Since time.Time
}

// StateOf returns the state in the ConfigMap; nil is an emergency stop that is off.
func StateOf(m *corev1.ConfigMap) State {
	if m == nil {
		return State{}
	}
	key := Key
	if _, ok := m.Data[Key]; !ok && m.Data[FormerKey] != "" {
		key = FormerKey
	}
	s := State{On: m.Data[key] != Off, Reason: m.Data[ReasonKey], Since: m.CreationTimestamp.UTC()}
	// The writer of by and the one who switched may differ: then by is of an earlier switch.
	for _, entry := range m.ManagedFields {
		owned := dataOf(entry)
		if !owned[key] {
			continue
		}
		if s.By = entry.Manager; owned[ByKey] && m.Data[ByKey] != "" {
			s.By = m.Data[ByKey]
		}
		if entry.Time != nil {
			s.Since = entry.Time.UTC()
		}
	}
	return s
}

// String is the state in a line.
func (s State) String() string {
	text := "emergency stop OFF"
	if s.On {
		text = "emergency stop ON"
	}
	if !s.Since.IsZero() {
		text += " since " + s.Since.Format(time.DateTime) + " UTC"
	}
	return text + s.describe()
}

// dataOf are the keys of the data that a writer set last.
func dataOf(entry metav1.ManagedFieldsEntry) map[string]bool {
	var fields struct {
		Data map[string]json.RawMessage `json:"f:data"`
	}
	keys := map[string]bool{}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return keys
	}
	for key := range fields.Data {
		if len(key) > 2 {
			keys[key[2:]] = true // "f:pause"
		}
	}
	return keys
}

// Read reads the state of the emergency stop from the API server.
func Read(ctx context.Context, client kubernetes.Interface, namespace string) (State, error) {
	for _, name := range []string{Name, FormerName} {
		m, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return StateOf(m), nil
		}
		if !apierrors.IsNotFound(err) {
			return State{}, fmt.Errorf("reading the emergency stop: %w", err)
		}
	}
	return State{}, nil
}

// Set switches the emergency stop. The API server sets Since. An emergency stop that was
// never on needs no ConfigMap to be off. A ConfigMap of the former name is switched
// too: it decides where there is no other, and for processes of the former version.
func Set(ctx context.Context, client kubernetes.Interface, namespace string, s State) error {
	for _, at := range [][2]string{{Name, Key}, {FormerName, FormerKey}} {
		if err := set(ctx, client.CoreV1().ConfigMaps(namespace), at[0], at[1], s); err != nil {
			return fmt.Errorf("setting the emergency stop (ConfigMap %s/%s): %w", namespace, at[0], err)
		}
	}
	return nil
}

// set switches in one ConfigMap. Only the one of the present name is created, when the
// emergency stop goes on.
func set(ctx context.Context, maps corev1client.ConfigMapInterface, name, key string, s State) error {
	data := map[string]string{key: "on", ByKey: s.By, ReasonKey: s.Reason}
	if !s.On {
		data[key] = Off
	}
	patch, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		return err
	}
	_, err = maps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager})
	switch {
	case !apierrors.IsNotFound(err):
		return err //nolint:wrapcheck // Set says what was being done
	case !s.On || name != Name:
		return nil
	}
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{FieldManager: manager})
	return err //nolint:wrapcheck // Set says what was being done
}
