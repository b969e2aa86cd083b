// The kubelet's way to give a volume to a group, call for call (pkg/volume/volume_linux.go of
// Kubernetes): `go build -o /tmp/kubelet-way crates/host/examples/fsgroup.go`, for the example beside it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

func main() {
	group, err := strconv.Atoi(os.Args[2])
	if err == nil {
		var root os.FileInfo
		if root, err = os.Lstat(os.Args[1]); err == nil {
			err = walk(os.Args[1], root, group)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func walk(path string, info os.FileInfo, group int) error {
	if !info.IsDir() {
		return change(path, info, group)
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	names, err := folder.Readdirnames(-1)
	folder.Close()
	if err != nil {
		return err
	}
	for _, name := range names {
		below := filepath.Join(path, name)
		info, err := os.Lstat(below)
		if err != nil {
			return err
		}
		if err := walk(below, info, group); err != nil {
			return err
		}
	}
	return change(path, info, group)
}

func change(path string, info os.FileInfo, group int) error {
	if err := os.Lchown(path, -1, group); err != nil {
		return err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		return nil
	}
	mask := os.FileMode(0660)
	if info.IsDir() {
		mask |= os.ModeSetgid | 0110
	}
	return os.Chmod(path, info.Mode()|mask)
}
