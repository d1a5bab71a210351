module github.com/everynode/everynode

go 1.26.0
