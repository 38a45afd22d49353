//go:build newest

package main

import (
	"context"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

func addNewerFields(loaded map[string]interface{}, list *libcni.NetworkConfigList) {
	loaded["disable_gc"] = list.DisableGC
	loaded["load_only_inlined_plugins"] = list.LoadOnlyInlinedPlugins
}

// gc and status need Go libcni 1.2 or newer.
func (j *job) gc(ctx context.Context, s *step) (map[string]interface{}, error) {
	list, err := j.list(s)
	if err != nil {
		return nil, err
	}
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, pair := range s.Valid {
		valid := types.GCAttachment{ContainerID: pair[0], IfName: pair[1]}
		args.ValidAttachments = append(args.ValidAttachments, valid)
	}
	return nil, j.cni().GCNetworkList(ctx, list, args)
}

func (j *job) status(ctx context.Context, s *step) (map[string]interface{}, error) {
	list, err := j.list(s)
	if err != nil {
		return nil, err
	}
	return nil, j.cni().GetStatusNetworkList(ctx, list)
}
