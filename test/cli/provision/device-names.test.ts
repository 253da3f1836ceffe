import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { StartError } from '../../../src/base/app-error.ts'
import { checkDeviceName, readDeviceNames } from '../../../src/cli/provision/device-plans.ts'
import { temporaryFolder } from '../../helpers/temporary-folder.ts'

function read(text: string): string[] {
  const path = join(temporaryFolder(), 'list.txt')
  writeFileSync(path, text)
  return readDeviceNames(path)
}

describe('a list of devices', () => {
  it.each([
    ['cam1\ncam2\n', ['cam1', 'cam2']],
    ['\ufeffcam1\r\n\r\n  cam2 # at the gate\n# cam3\n', ['cam1', 'cam2']],
    ['7', ['7']],
  ])('%j names %j', (text, names) => {
    expect(read(text)).toEqual(names)
  })

  it('is refused with every bad line', () => {
    expect(() => read('cam1\nCam2\n../etc\ncam1\na b\n')).toThrow(
      /list\.txt:2: "Cam2" is not a valid device name.*\n.*:3: "\.\.\/etc" is not a valid device name.*\n.*:4: cam1 is already in line 1\n.*:5: "a b" is not a valid device name/,
    )
  })

  it('is refused in ten lines and a number, however bad it is', () => {
    const lines = () => read('X\n'.repeat(50))
    expect(lines).toThrow(StartError)
    expect(lines).toThrow(/and 40 more$/)
  })

  it.each([
    ['', /contains no device names/],
    ['# nobody\n\n', /contains no device names/],
    [
      Array.from({ length: 10_001 }, (_, n) => `d${n}`).join('\n'),
      /contains 10001 devices\. The limit is 10000/,
    ],
  ])('is refused when it names none or too many', (text, sentence) => {
    expect(() => read(text)).toThrow(sentence)
  })

  it('is refused when it cannot be read', () => {
    const folder = temporaryFolder()
    expect(() => readDeviceNames(join(folder, 'nothing'))).toThrow(/file not found/)
    expect(() => readDeviceNames(folder)).toThrow(/EISDIR/)
  })
})

describe('the name of a device', () => {
  it.each(['a', 'cam-7', '7', 'a'.repeat(63)])('may be %s', (name) => {
    expect(() => checkDeviceName(name)).not.toThrow()
  })

  it.each(['', 'Cam', '-a', 'a-', 'a.b', 'a_b', '../x', 'a\n', 'a'.repeat(64)])(
    'may not be %j',
    (name) => {
      expect(() => checkDeviceName(name)).toThrow(StartError)
    },
  )
})
