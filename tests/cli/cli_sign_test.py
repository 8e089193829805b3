"""sign, and --require-signature."""

import os
import unittest

import tool
from tool import davit


class SignTest(tool.ToolTest):

    def signed(self):
        image, key = self.image(), self.path("release.key")
        result = davit("sign", "--new-key", key)
        if "built without libsodium" in result.err:
            self.skipTest("built without libsodium")
        self.check_passed(result)
        self.check_passed(davit("sign", image, "--key", key))
        self.assertTrue(os.path.exists(image + ".sig"))
        return image, key + ".pub"

    def test_only_signed_images_run(self):
        image, key = self.signed()
        for command in "run", "verify", "bench":
            self.check_passed(davit(command, image, "--require-signature", key))
        with open(image, "r+b") as file:
            file.seek(200)
            byte = file.read(1)[0]
            file.seek(200)
            file.write(bytes([byte ^ 1]))
        for command in "run", "verify":
            result = davit(command, image, "--require-signature", key)
            self.assertNotEqual(result.code, 0)
            self.assertIn("signature is not that of this image", result.last)

    def test_a_signature_elsewhere(self):
        image, key = self.signed()
        moved = self.path("elsewhere")
        os.rename(image + ".sig", moved)
        result = davit("run", image, "--require-signature", key)
        self.assertNotEqual(result.code, 0)
        self.assertIn("model.davit.sig", result.last)
        self.check_passed(davit("run", image, "--require-signature", key, "--signature", moved))
        self.check_failed(davit("run", image, "--signature", moved), 2, "usage", "--require-signature")

    def test_keys_are_not_replaced_or_mixed_up(self):
        image, key = self.signed()
        result = davit("sign", "--new-key", self.path("release.key"))
        self.assertNotEqual(result.code, 0)
        self.assertIn("release.key", result.last)
        result = davit("sign", image, "--key", key)
        self.assertNotEqual(result.code, 0)
        self.assertIn("davit-secret-key", result.out + result.err)
        self.check_failed(davit("sign"), 2, "usage", "an image is needed")
        self.check_failed(davit("sign", image), 2, "usage", "--key is needed")
        text = self.path("model.txt")
        result = davit("run", text, "--require-signature", key)
        self.check_failed(result, 2, "usage", "only images are signed")


if __name__ == "__main__":
    unittest.main()
