/**
 * `npm run test:systemd [-- FOLDER KEYFILE]`: the Debian package in a bare Debian 12 with a real systemd as PID 1, in
 * namespaces of its own: installation, join, update, reload and stop, a power cut, removal. The folder has packages
 * that `npm run package -- --sign KEYFILE` made; without it they are made first. Needs root, debootstrap and cgroup2.
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process'
import { createPrivateKey, generateKeyPairSync } from 'node:crypto'
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import process from 'node:process'
import { setTimeout as pause } from 'node:timers/promises'
import { printTable } from '../../bench/tools.ts'
import { archiveIn, makeVersions } from '../update/versions.ts'
import { STEPS } from './steps.ts'

const ROOT = join(import.meta.dirname, '../..')
const PACKAGES = 'systemd,systemd-sysv,dbus,iproute2,curl,ca-certificates'
/** As a container manager does: without a shared root, systemd passes no credentials to services. */
const BOOT = `
ip link set lo up
mount --make-rprivate /
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs sys/fs
mkdir sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
for folder in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
chmod 1777 tmp
for device in null zero full random urandom tty; do
  touch "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mkdir -p old
pivot_root . old
umount --lazy /old
mount --make-rshared /
exec env -i container=unshare PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --show-status=0
`
const BOOT_WITHIN_MS = 60_000
const STEP_MS = 180_000

/** A root folder in which systemd runs. */
class Machine {
  readonly #root: string
  #boot: ChildProcess | undefined
  #pid = 0

  constructor(root: string) {
    this.#root = root
  }

  async boot(): Promise<void> {
    const namespaces = ['--net', '--mount', '--pid', '--uts', '--ipc', '--cgroup', '--fork']
    const words = [...namespaces, '--kill-child', 'sh', '-euc', BOOT, 'sh', this.#root]
    this.#boot = spawn('unshare', words, { stdio: ['ignore', 'ignore', 'inherit'] })
    const until = Date.now() + BOOT_WITHIN_MS
    while (this.run('systemctl is-system-running --wait').status !== 0) {
      if (Date.now() > until || this.#boot.exitCode !== null)
        throw new Error('systemd did not start')
      await pause(200)
      // The child of unshare is PID 1 in there.
      const children = `/proc/${this.#boot.pid}/task/${this.#boot.pid}/children`
      this.#pid = Number(readFileSync(children, 'utf8').trim())
    }
  }

  run(command: string): { status: number | null; text: string } {
    if (this.#pid === 0) return { status: null, text: '' }
    const into = ['--mount', '--pid', '--uts', '--ipc', '--cgroup', '--net', '--root']
    const { status, stdout, stderr } = spawnSync(
      'nsenter',
      [
        `--target=${this.#pid}`,
        ...into,
        'env',
        '-i',
        'PATH=/usr/sbin:/usr/bin:/sbin:/bin',
        'HOME=/root',
      ].concat(['sh', '-euc', `cd /root; ${command}`]),
      { encoding: 'utf8', timeout: STEP_MS, killSignal: 'SIGKILL' },
    )
    return { status, text: `${stdout}${stderr}` }
  }

  /** As a power cut: nothing in there can do anything more. */
  async cut(): Promise<void> {
    const boot = this.#boot
    if (this.#pid > 0 && boot?.exitCode === null) {
      const ended = new Promise((done) => boot.once('exit', done))
      process.kill(this.#pid, 'SIGKILL')
      await ended
    }
    this.#pid = 0
  }
}

if (process.getuid?.() !== 0)
  throw new Error('Run npm run test:systemd as root: it needs namespaces.')
for (const tool of ['debootstrap', 'unshare', 'nsenter', 'ip']) {
  if (spawnSync('sh', ['-c', `command -v ${tool}`]).status !== 0) {
    throw new Error(`${tool} is missing. Install the package ${tool === 'ip' ? 'iproute2' : tool}.`)
  }
}
const work = mkdtempSync('/var/tmp/device-agent-systemd-')
const root = join(work, 'root')
const machine = new Machine(root)
try {
  const [, , given, givenKey] = process.argv
  const keyPath = resolve(givenKey ?? join(work, 'key.pem'))
  if (givenKey === undefined) {
    const { privateKey } = generateKeyPairSync('ed25519')
    writeFileSync(keyPath, privateKey.export({ type: 'pkcs8', format: 'pem' }), { mode: 0o600 })
  }
  const packages = resolve(given ?? join(work, 'packages'))
  if (given === undefined) {
    const kinds = ['--arch', 'x64', '--only', 'deb', '--only', 'tar', '--sign', keyPath]
    const args = ['packaging/main.ts', ...kinds, '--output', packages]
    execFileSync(join(ROOT, 'node_modules/.bin/tsx'), args, { cwd: ROOT, stdio: 'inherit' })
  }
  const format = ['indextargets', '--format', '$(REPO_URI)', 'Codename: bookworm']
  const [mirror = ''] = execFileSync('apt-get', format, { encoding: 'utf8' }).split('\n')
  const words = ['--variant=minbase', `--include=${PACKAGES}`, 'bookworm', root]
  execFileSync('debootstrap', mirror ? [...words, mirror] : words, { stdio: 'ignore' })
  const inside = join(root, 'root')
  copyFileSync(archiveIn(packages, '_amd64.deb'), join(inside, 'package.deb'))
  const made = join(work, 'versions')
  mkdirSync(made)
  const key = createPrivateKey(readFileSync(keyPath))
  const tarball = archiveIn(packages, '-linux-x64.tar.gz')
  for (const { name, archive } of makeVersions(
    tarball,
    made,
    key,
    '^starts and dies$|^a good one',
  )) {
    const file = name === 'starts and dies' ? 'bad.tar.gz' : 'good.tar.gz'
    for (const end of ['', '.sig']) copyFileSync(`${archive}${end}`, join(inside, `${file}${end}`))
  }
  await machine.boot()
  const rows: string[][] = []
  for (const { what, command, power } of STEPS) {
    const startedAt = performance.now()
    if (power) {
      await machine.cut()
      await machine.boot()
    }
    const { status, text } = machine.run(command)
    const seconds = `${((performance.now() - startedAt) / 1_000).toFixed(1)} s`
    rows.push([what, status === 0 ? 'works' : 'FAILED', seconds])
    process.stderr.write(`${rows.at(-1)?.join(': ')}\n`)
    if (status !== 0) {
      process.exitCode = 1
      const log = machine.run(
        'journalctl --no-pager -o cat -n 20 -u device-agent -u device-gateway',
      )
      process.stderr.write(`${text}\n${log.text}`)
      break
    }
  }
  printTable(['step', 'result', 'took'], rows)
} finally {
  await machine.cut()
  rmSync(work, { recursive: true, force: true })
}
