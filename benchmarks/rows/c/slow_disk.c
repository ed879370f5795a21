/* Shows a file as a disk each of whose reads waits, any number of them at a time: slow_disk IMAGE MICROSECONDS FOLDER
 *
 * FOLDER/disk are the bytes of IMAGE. Needs libfuse 3; reads are asked for as `losetup --direct-io` asks for them. */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int image;
static useconds_t wait_us;

static int get_attributes(const char *path, struct stat *found, struct fuse_file_info *info) {
  memset(found, 0, sizeof *found);
  found->st_mode = strcmp(path, "/disk") ? S_IFDIR | 0700 : S_IFREG | 0400;
  found->st_nlink = 1;
  found->st_size = lseek(image, 0, SEEK_END);
  return 0;
}

static int open_disk(const char *path, struct fuse_file_info *info) {
  info->direct_io = 1;
  return 0;
}

static int read_disk(const char *path, char *buffer, size_t size, off_t at, struct fuse_file_info *info) {
  usleep(wait_us);
  ssize_t got = pread(image, buffer, size, at);
  return got < 0 ? -errno : (int)got;
}

static void *begin(struct fuse_conn_info *connection, struct fuse_config *settings) {
  connection->max_background = 128;
  return NULL;
}

static const struct fuse_operations operations = {
    .init = begin, .getattr = get_attributes, .open = open_disk, .read = read_disk};

int main(int count, char **arguments) {
  if (count != 4) return 2;
  image = open(arguments[1], O_RDONLY);
  if (image < 0) return 1;
  wait_us = (useconds_t)atol(arguments[2]);
  char *mine[] = {arguments[0], "-o", "max_threads=128", arguments[3], NULL};
  return fuse_main(4, mine, &operations, NULL);
}
