import { describe, expect, it } from 'vitest'
import {
  maskedAddresses,
  maskedBody,
  maskedValue,
} from '../../../src/api/inspection/masked-text.ts'

describe('maskedAddresses', () => {
  it.each([
    ['/a', '/a'],
    ['/a?b', '/a?b'],
    ['/a?token=', '/a?token=[secret]'],
    ['/a?api%5Fkey=1&x=2', '/a?api%5Fkey=[secret]&x=2'],
    ['/a?%zz=1', '/a?%zz=1'],
    ['/a?PASSWORD=1?token=2', '/a?PASSWORD=[secret]'],
    ['/a?a=?token=1', '/a?a=?token=[secret]'],
    ['/a?next=/b?x=1&token=2', '/a?next=/b?x=1&token=[secret]'],
    ['/a?next=%2Fb%3Fx%3D1%26token%3D2&y=1', '/a?next=[secret]&y=1'],
    ['/a?next=%2Fb%3Fx%3D1&y=1', '/a?next=%2Fb%3Fx%3D1&y=1'],
    ['/a?token=1;2;3&x=1', '/a?token=[secret]&x=1'],
    ['/a?x=1;token=2', '/a?x=1;token=[secret]'],
    ['/shop;jsessionid=12/cart?x=1', '/shop;jsessionid=[secret]/cart?x=1'],
    ['https://a.test/#access_token=1&state=2', 'https://a.test/#access_token=[secret]&state=2'],
    ['https://ann:pw@a.test/', 'https://[secret]@a.test/'],
  ])('%s', (text, masked) => {
    expect(maskedAddresses(text)).toBe(masked)
  })
})

describe('maskedValue', () => {
  it.each([
    ['Cookie', 'a=1', '[secret]'],
    ['X-Api-Key', '1', '[secret]'],
    ['X-Upstream', 'Bearer abc', '[secret]'],
    ['X-Upstream', 'basic YTpi', '[secret]'],
    ['Link', '</next?token=1>; rel="next"', '</next?token=[secret]>; rel="next"'],
    ['Content-Type', 'text/html; charset=utf-8', 'text/html; charset=utf-8'],
    ['Accept', '*/*;q=0.8', '*/*;q=0.8'],
  ])('%s: %s', (name, value, masked) => {
    expect(maskedValue(name, value)).toBe(masked)
  })
})

describe('maskedBody', () => {
  it.each([
    ['{"hello":1}', '{"hello":1}'],
    ['{"password":"a","x":1}', '{"password":"[secret]","x":1}'],
    ['{ "Token" : "a\\"b,c" , "x": 1 }', '{ "Token" : "[secret]" , "x": 1 }'],
    ['{"token":123,"x":1}', '{"token":"[secret]","x":1}'],
    ['{"x":{"token":123}}', '{"x":{"token":"[secret]"}}'],
    ['{"tokens":["a",["b"],{"c":"]"}],"x":1}', '{"tokens":"[secret]","x":1}'],
    ['{"secret":{"a":"}"},"x":1}', '{"secret":"[secret]","x":1}'],
    ['{"x":1,"password":"half of i', '{"x":1,"password":"[secret]"'],
    ['{"x":1,"password":', '{"x":1,"password":"[secret]"'],
    [
      '{"text":"{\\"password\\":\\"a\\",\\"x\\":1}"}',
      '{"text":"{\\"password\\":\\"[secret]\\",\\"x\\":1}"}',
    ],
    ['<a><Password Type="x">pw</Password></a>', '<a><Password Type="x">[secret]</Password></a>'],
    ['<wsse:Password>pw', '<wsse:Password>[secret]'],
    ['token=1', 'token=1'],
  ])('%s', (text, masked) => {
    expect(maskedBody(text, '')).toBe(masked)
  })

  it('hides fields of forms', () => {
    const form = 'user=ann&password=a%26b&x=1'
    const type = 'application/x-www-form-urlencoded; charset=utf-8'
    expect(maskedBody(form, type)).toBe('user=ann&password=[secret]&x=1')
    const part = (name: string, value: string) =>
      `--b\r\nContent-Disposition: form-data; name="${name}"\r\nX-A: 1\r\n\r\n${value}\r\n`
    const parts = (password: string) => `${part('user', 'ann')}${part('password', password)}--b--`
    expect(maskedBody(parts('a\r\nb'), 'multipart/form-data; boundary=b')).toBe(parts('[secret]'))
    expect(maskedBody('--b\r\nno head', 'multipart/form-data')).toBe('--b\r\nno head')
  })

  it.each([
    ['', 'content-disposition: name='],
    ['multipart/form-data', 'content-disposition: name='],
    ['', '"a" '],
    ['', '"token":['],
    ['', '<a '],
    ['application/x-www-form-urlencoded', '?;&//'],
  ])('takes no longer than the text is long: %s %s', (type, piece) => {
    const text = piece.repeat((512 * 1024) / piece.length)
    expect(maskedBody(text, type).length).toBeGreaterThan(0)
  })
})
