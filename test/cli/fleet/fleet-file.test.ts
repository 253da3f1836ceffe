import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { readFleet } from '../../../src/cli/fleet/fleet-file.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

const GOOD = `version: 1
connect:
  address: 127.0.0.1:8443
  ca: ca.pem
vars: { port: 8001 }
device_vars:
  cam02: { port: 8002 }
policies:
  closed: closed.yaml
  open: { on_http_request: [] }
sets:
  cameras:
    tags: [camera]
    tunnels:
      - domain: view.{name}.site.test
        forwards_to: localhost:{port}
        policy: closed
      - { protocol: tcp, forwards_to: 22 }
`

function fileWith(text: string, more: Readonly<Record<string, string>> = {}): string {
  const folder = temporaryFolder()
  const files = { 'fleet.yaml': text, 'closed.yaml': 'on_http_request: []\n', ...more }
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content)
  return join(folder, 'fleet.yaml')
}

/** What is wrong with a file, with its path as `fleet.yaml`. */
function mistakesIn(text: string): string[] {
  const path = fileWith(text)
  const shown = (line: string) => line.replaceAll(path, 'fleet.yaml')
  try {
    return readFleet(path).mistakes.map(shown)
  } catch (error) {
    expect(error).toBeInstanceOf(StartError)
    const [heading, ...lines] = (error as Error).message.split('\n').map(shown)
    expect(heading).toMatch(/^\d+ mistakes? in fleet\.yaml:$/)
    return lines
  }
}

describe('readFleet', () => {
  it('reads what a fleet shall have, its files beside it', () => {
    const path = fileWith(GOOD)
    const fleet = readFleet(path)
    expect(fleet).toMatchObject({
      devicesPath: join(path, '../fleet-devices.jsonl'),
      connect: { address: { host: '127.0.0.1', port: 8_443 }, caPath: join(path, '../ca.pem') },
      vars: { port: 8001 },
      deviceVars: { cam02: { port: 8002 } },
      policies: {
        closed: { policy: 'on_http_request: []\n', path: join(path, '../closed.yaml') },
        open: { policy: { on_http_request: [] }, path: undefined },
      },
    })
    expect(fleet.sets.cameras?.tunnels).toEqual([
      {
        protocol: 'http',
        domain: 'view.{name}.site.test',
        forwards_to: 'localhost:{port}',
        policy: 'closed',
      },
      { protocol: 'tcp', forwards_to: '22' },
    ])
  })

  it.each([
    ['version: 2\nsets: {}\n', ['fleet.yaml:1:10: version must be 1.']],
    [
      GOOD.replace('version: 1', 'colour: red\nversion: 1'),
      [
        'fleet.yaml:1:9: colour is not a field of the file. Known fields: version, devices, connect, vars, device_vars, policies and sets.',
      ],
    ],
    [
      GOOD.replace('forwards_to: localhost', 'forward_to: localhost'),
      ['fleet.yaml:16:21: forward_to is not a field of a tunnel. Did you mean forwards_to?'],
    ],
    [
      GOOD.replace('        forwards_to: localhost:{port}\n', ''),
      ['fleet.yaml:15:9: forwards_to is missing.'],
    ],
    [
      GOOD.replace('policy: closed', 'polcy: closed').replace(
        'vars: { port',
        'vars: { "a b": 1, port',
      ),
      [
        'fleet.yaml:5:16: a b must be a name: letters, digits, _ and -, 64 at most.',
        'fleet.yaml:17:16: polcy is not a field of a tunnel. Did you mean policy?',
      ],
    ],
    [
      GOOD.replace('policy: closed', 'upstream: { helth: off }'),
      ['fleet.yaml:17:28: helth is not a field of upstream. Did you mean health?'],
    ],
    [
      GOOD.replace('forwards_to: 22', 'forwards_to: [22]'),
      [
        'fleet.yaml:18:39: forwards_to must be an upstream address, such as localhost:8001 or a port.',
      ],
    ],
    [
      GOOD.replace('8443', 'x').replace('tags: [camera]', 'tags: camera'),
      ['fleet.yaml:3:12: address must be host:port.', 'fleet.yaml:13:11: tags must be a list.'],
    ],
    ['version: 1\n  sets: {}\n', [expect.stringMatching(/^fleet\.yaml:1:10: /), expect.anything()]],
    ['version: 1\nsets: {}\nsets: {}\n', [expect.stringMatching(/^fleet\.yaml:3:1: /)]],
    [
      GOOD.replace('  address', '   address'),
      [
        expect.stringMatching(
          /^fleet\.yaml:4:1: The file is not YAML: .*\. Indent this line like its neighbours\.$/,
        ),
      ],
    ],
    [
      GOOD.replace('closed.yaml', 'gone.yaml'),
      [
        expect.stringMatching(
          /^fleet\.yaml:9:11: Cannot read .*gone\.yaml: there is no such file\.$/,
        ),
      ],
    ],
  ])('names each mistake with its line and its place: %j', (text, mistakes) => {
    expect(mistakesIn(text)).toEqual(mistakes)
  })

  it('says when there is no file', () => {
    expect(() => readFleet('/nowhere/fleet.yaml')).toThrow(
      /^Cannot read \/nowhere\/fleet\.yaml: there is no such file\.$/,
    )
  })
})
