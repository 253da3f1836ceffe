import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { componentsOf, noticesText } from '../components.ts'
import type { ProgramFolder } from '../program-folder.ts'
import { type Manifest, ROOT } from '../project.ts'
import { sbomText } from '../sbom.ts'
import type { Target } from '../target.ts'
import { basePackages, componentOf, unpackBase } from './base-packages.ts'
import { imageLauncherText, LIB } from './launcher.ts'
import { entriesIn, gzip, type LayerEntries, type LayerEntry, sha256, tarOf } from './layer.ts'

/** The user of the image. A number, so that Kubernetes can see that it is not root. */
const UID = 65_532
const DOCS = 'usr/share/doc/device-agent'
const OCI = 'application/vnd.oci.image'

interface Descriptor {
  readonly mediaType: string
  readonly digest: string
  readonly size: number
}

/** The image for one machine: its manifest, and all bytes that it refers to. */
export interface MachineImage {
  readonly manifest: Descriptor
  readonly config: Descriptor
  readonly layers: readonly Descriptor[]
  readonly blobs: ReadonlyMap<string, Buffer>
  readonly target: Target
}

export interface ImageOptions {
  readonly manifest: Manifest
  readonly target: Target
  readonly program: ProgramFolder
  readonly work: string
  /** Seconds since the epoch. */
  readonly date: number
}

/** Layers by how often they change: libraries of Debian, Node, the program. */
export async function makeMachineImage(options: ImageOptions): Promise<MachineImage> {
  const { manifest, target, date } = options
  const blobs = new Map<string, Buffer>()
  const keep = (bytes: Buffer, mediaType: string): Descriptor => {
    const digest = sha256(bytes)
    blobs.set(digest, bytes)
    return { mediaType, digest: `sha256:${digest}`, size: bytes.length }
  }
  const keepJson = (value: object, mediaType: string) =>
    keep(Buffer.from(JSON.stringify(value)), mediaType)
  const parts = {
    'Debian libraries': systemEntries(options),
    'Node.js': entriesIn(options.program.path, isNode, LIB),
    'device-agent': programEntries(options),
  }
  const diffIds: string[] = []
  const layers: Descriptor[] = []
  for (const entries of Object.values(parts)) {
    const bytes = await tarOf(entries, date)
    diffIds.push(`sha256:${sha256(bytes)}`)
    layers.push(keep(gzip(bytes), `${OCI}.layer.v1.tar+gzip`))
  }
  const created = new Date(date * 1_000).toISOString()
  const config = keepJson(
    {
      ...platformOf(target),
      created,
      config: runSettings(manifest),
      rootfs: { type: 'layers', diff_ids: diffIds },
      history: Object.keys(parts).map((comment) => ({ created, comment })),
    },
    `${OCI}.config.v1+json`,
  )
  const mediaType = `${OCI}.manifest.v1+json`
  const described = keepJson({ schemaVersion: 2, mediaType, config, layers }, mediaType)
  return { manifest: described, config, layers, blobs, target }
}

/** What a runtime starts, and how. */
export function runSettings({ name, version, description, license }: Manifest): object {
  return {
    User: `${UID}:0`,
    Env: [
      'PATH=/usr/bin',
      'NODE_ENV=production',
      'MALLOC_ARENA_MAX=1',
      'AGENT_DATA_DIR=/data/agent',
      'GATEWAY_DATA_DIR=/data/gateway',
      'CREDENTIALS_DIRECTORY=/run/secrets',
      'SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt',
    ],
    Entrypoint: ['/usr/bin/device-agent'],
    Cmd: ['run'],
    WorkingDir: '/data',
    Volumes: { '/data': {} },
    StopSignal: 'SIGTERM',
    Labels: {
      'org.opencontainers.image.title': name,
      'org.opencontainers.image.description': description,
      'org.opencontainers.image.version': version,
      'org.opencontainers.image.licenses': license,
    },
  }
}

const LIBRARY = /^(?:usr\/)?lib(?:64)?\/(?:[^/]+-linux-gnu\/)?(?:ld|lib)[^/]*\.so[^/]*$/
/** Libraries that only debuggers and programs of other kinds load. */
const NOT_LOADED = /\/lib(?:nsl|SegFault|memusage|pcprofile|c_malloc_debug|thread_db|BrokenLocale)/
const TERMS = /^usr\/share\/(?:doc\/[^/]+(?:\/copyright)?|common-licenses\/[^/]+)$/

/** What Node and the native libraries need of Debian, with its terms and with what scanners look for. */
function systemEntries({ target, work }: ImageOptions): LayerEntries {
  const entries: Record<string, LayerEntry> = {
    'etc/passwd': {
      content: `root:x:0:0::/:/sbin/nologin\ndevice-agent:x:${UID}:0::/data:/sbin/nologin\n`,
    },
    'etc/group': { content: 'root:x:0:\n' },
    'etc/nsswitch.conf': { content: 'hosts: files dns\n' },
    tmp: { mode: 0o1777 },
    // Group 0 is what a user has that only `--user` or OpenShift knows.
    data: { mode: 0o770, uid: UID },
  }
  for (const pinned of basePackages(target)) {
    const { name } = pinned
    const root = join(work, 'image', name)
    entries[`var/lib/dpkg/status.d/${name}`] = { content: unpackBase(pinned, root) }
    const isTaken = (path: string) =>
      TERMS.test(path) ||
      path === 'usr/lib/os-release' ||
      (name !== 'base-files' && LIBRARY.test(path) && !NOT_LOADED.test(path))
    Object.assign(entries, entriesIn(root, isTaken))
    if (name === 'ca-certificates') {
      const folder = join(root, 'usr/share/ca-certificates/mozilla')
      const texts = readdirSync(folder)
        .sort()
        .map((file) => `${readFileSync(join(folder, file), 'utf8').trim()}\n`)
      entries['etc/ssl/certs/ca-certificates.crt'] = { content: texts.join('') }
    }
  }
  entries['etc/os-release'] = { link: '../usr/lib/os-release' }
  return entries
}

const isNode = (path: string) => path === 'bin/node'

function programEntries({ manifest, target, program, date }: ImageOptions): LayerEntries {
  const components = componentsOf(program)
  const base = basePackages(target).map((pinned) => componentOf(pinned, target))
  const copyright = readFileSync(join(ROOT, 'packaging/debian/copyright'))
  return {
    ...entriesIn(program.path, (path) => !isNode(path) && !path.startsWith('systemd/'), LIB),
    [`${LIB}/bin/launch.mjs`]: { content: imageLauncherText(), mode: 0o755 },
    'usr/bin/device-agent': { link: `/${LIB}/bin/launch.mjs` },
    [`${DOCS}/NOTICES.txt`]: { content: noticesText(components) },
    [`${DOCS}/sbom.cdx.json`]: { content: sbomText(manifest, [...components, ...base], date) },
    [`${DOCS}/copyright`]: { content: copyright },
  }
}

const platformOf = ({ debian }: Target) =>
  ({ architecture: debian, os: 'linux', ...(debian === 'arm64' && { variant: 'v8' }) }) as const

interface ArchiveOptions {
  readonly manifest: Manifest
  readonly images: readonly MachineImage[]
  readonly output: string
  readonly date: number
}

/**
 * An OCI layout in a tar archive; returns its path. That of one machine can also be read by every `docker load`;
 * that file knows only one machine, so an archive for several does not have it.
 */
export async function writeImageArchive(options: ArchiveOptions): Promise<string> {
  const { manifest, images, output, date } = options
  const { name, version } = manifest
  const [only] = images.length === 1 ? images : []
  const mediaType = `${OCI}.index.v1+json`
  const listed = images.map((image) => ({ ...image.manifest, platform: platformOf(image.target) }))
  const index = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType, manifests: listed }))
  const blobs = new Map(images.flatMap((image) => [...image.blobs]))
  blobs.set(sha256(index), index)
  const top = { mediaType, digest: `sha256:${sha256(index)}`, size: index.length }
  const annotations = {
    'org.opencontainers.image.ref.name': version,
    'io.containerd.image.name': `docker.io/library/${name}:${version}`,
  }
  const entries: Record<string, LayerEntry> = {
    'oci-layout': { content: '{"imageLayoutVersion":"1.0.0"}' },
    'index.json': {
      content: JSON.stringify({
        schemaVersion: 2,
        mediaType,
        manifests: [{ ...top, annotations }],
      }),
    },
  }
  for (const [digest, content] of blobs) entries[pathOf(`sha256:${digest}`)] = { content }
  if (only) {
    const docker = {
      Config: pathOf(only.config.digest),
      RepoTags: [`${name}:${version}`],
      Layers: only.layers.map(({ digest }) => pathOf(digest)),
    }
    entries['manifest.json'] = { content: JSON.stringify([docker]) }
  }
  const path = join(output, `${name}-${version}${only ? `-linux-${only.target.arch}` : ''}.oci.tar`)
  writeFileSync(path, await tarOf(entries, date))
  return path
}

const pathOf = (digest: string) => `blobs/${digest.replace(':', '/')}`
